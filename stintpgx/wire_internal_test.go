package stintpgx

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// says encodes what a server says.
func says(t testing.TB, messages ...pgproto3.BackendMessage) (b []byte) {
	t.Helper()
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// asks encodes what a client says.
func asks(t testing.TB, messages ...pgproto3.FrontendMessage) (b []byte) {
	t.Helper()
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// types are the types of some messages, in order.
func types(b []byte) (s string) {
	for len(b) >= 5 {
		s += string(b[0])
		b = b[min(len(b), 1+int(b[1])<<24+int(b[2])<<16+int(b[3])<<8+int(b[4])):]
	}
	return s
}

func someTime() *limit { return &limit{ends: time.Now().Add(10 * time.Second)} }

// TestWireWrite: what goes out in front of what.
func TestWireWrite(t *testing.T) {
	parse, bind, sync := &pgproto3.Parse{Query: "select 1"}, &pgproto3.Bind{PreparedStatement: "one"}, &pgproto3.Sync{}
	describe, execute := &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}
	for _, c := range []struct {
		name            string
		named, prepared bool
		send            []pgproto3.FrontendMessage
		want, answer    string
		still           bool // the limit is still to go out
	}{
		{"a prepared statement", true, true, []pgproto3.FrontendMessage{bind, execute, sync}, "BEBES", "2C", false},
		{"the first on its connection", true, false, []pgproto3.FrontendMessage{bind, execute, sync}, "PBEBES", "12C", false},
		{"nothing may have a name", false, true, []pgproto3.FrontendMessage{parse, bind, describe, execute, sync}, "PBEPBDES", "12C", false},
		{"to prepare", true, true, []pgproto3.FrontendMessage{parse, &pgproto3.Describe{ObjectType: 'S'}, sync}, "PDS", "", true},
		{"to close", true, true, []pgproto3.FrontendMessage{&pgproto3.Close{ObjectType: 'S', Name: "one"}, sync}, "CS", "", true},
		{"simple", true, true, []pgproto3.FrontendMessage{&pgproto3.Query{String: "select 1"}}, "Q", "TC", false},
		{"goodbye", true, true, []pgproto3.FrontendMessage{&pgproto3.Terminate{}}, "X", "", true},
	} {
		var out bytes.Buffer
		w := &wire{w: &out, named: c.named, prepared: [2]bool{c.prepared, c.prepared}}
		w.arm(someTime())
		p := asks(t, c.send...)
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Errorf("%s: wrote %d, %v, want %d", c.name, n, err, len(p))
		}
		if have := types(out.Bytes()); have != c.want || w.answer != c.answer || (w.armed.Load() != nil) != c.still {
			t.Errorf("%s: wrote %s, expects %q, armed %v: want %s, %q, %v", c.name, have, w.answer, w.armed.Load() != nil, c.want, c.answer, c.still)
		}
		if have := out.Bytes(); c.want == "Q" && !bytes.HasSuffix(have, []byte(", true) is null;select 1\x00")) {
			t.Errorf("%s: wrote %q", c.name, have)
		}
	}
}

// TestWireWriteFails: pgx may send again what was not sent, and only that.
func TestWireWriteFails(t *testing.T) {
	p := asks(t, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
	whole := &bytes.Buffer{}
	w := &wire{w: whole, named: true}
	w.arm(someTime())
	w.Write(p)
	before := whole.Len() - len(p)
	for sent, want := range map[int]int{0: 0, before: 0, before + 3: 3} {
		w := &wire{w: short(sent), named: true}
		w.arm(someTime())
		if n, err := w.Write(p); n != want || err == nil {
			t.Errorf("%d bytes sent of all: %d, %v, want %d and an error", sent, n, err, want)
		}
	}
}

// short is a connection that takes so many bytes.
type short int

func (s short) Write([]byte) (int, error) { return int(s), errors.New("broken") }

// TestWireRead: the answer to the limit is taken out, in whatever pieces it comes.
func TestWireRead(t *testing.T) {
	row := func(n int) *pgproto3.DataRow {
		return &pgproto3.DataRow{Values: [][]byte{bytes.Repeat([]byte("x"), n)}}
	}
	limit := []pgproto3.BackendMessage{&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")}}
	notice := &pgproto3.NotificationResponse{Channel: "c", Payload: "p"}
	refusal := &pgproto3.ErrorResponse{Severity: "ERROR", Code: "26000"}
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	rest := []pgproto3.BackendMessage{&pgproto3.BindComplete{}, row(10), row(9000), row(0), &pgproto3.CommandComplete{CommandTag: []byte("SELECT 3")}, ready}
	join := func(parts ...[]pgproto3.BackendMessage) (all []pgproto3.BackendMessage) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	one := func(m ...pgproto3.BackendMessage) []pgproto3.BackendMessage { return m }
	for _, c := range []struct {
		name       string
		says, want []pgproto3.BackendMessage
		refused    bool
	}{
		{"an answer", join(limit, rest), rest, false},
		{"with a notification before", join(one(notice), limit, rest), join(one(notice), rest), false},
		{"within", join(limit[:1], one(notice), limit[1:], rest), join(one(notice), rest), false},
		{"refused at once", one(refusal, ready), one(refusal, ready), true},
		{"refused when it ran", join(limit[:2], one(refusal, ready)), one(refusal, ready), true},
		{"the statement is refused", join(limit, one(refusal, ready)), one(refusal, ready), false},
	} {
		for how, pieces := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader,
		} {
			for _, size := range []int{1, 3, 64, 8192} { // of the buffer that is read into
				var asked bytes.Buffer
				w := &wire{r: pieces(bytes.NewReader(says(t, c.says...))), w: &asked, named: true}
				w.arm(someTime())
				w.Write(asks(t, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{}))
				have, err := readAll(w, size)
				if known := c.name != "refused at once"; w.prepared[0] != known {
					t.Errorf("%s: the server knows the statement: %v, want %v", c.name, w.prepared[0], known)
				}
				if err != nil || !bytes.Equal(have, says(t, c.want...)) || w.refused != c.refused {
					t.Errorf("%s, %s, %d bytes each: %s, refused %v, error %v: want %s, %v", c.name, how, size, types(have), w.refused, err, types(says(t, c.want...)), c.refused)
				}
			}
		}
	}
}

// TestWireMidMessage: pgx may have read half of a notification when the limit goes out.
func TestWireMidMessage(t *testing.T) {
	notice := says(t, &pgproto3.NotificationResponse{Channel: "c", Payload: "2C2C"})
	after := says(t, &pgproto3.BindComplete{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	answer := says(t, &pgproto3.BindComplete{}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
	for cut := range notice {
		var server, asked bytes.Buffer
		w := &wire{r: &server, w: &asked, named: true, prepared: [2]bool{true, true}}
		server.Write(notice[:cut])
		have := make([]byte, 100)
		n, _ := w.Read(have)
		w.arm(someTime())
		w.Write(asks(t, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{}))
		server.Write(notice[cut:])
		server.Write(answer)
		server.Write(after)
		rest, err := readAll(w, 64)
		if have := append(have[:n], rest...); err != nil || !bytes.Equal(have, append(bytes.Clone(notice), after...)) {
			t.Errorf("cut after %d bytes: %q, error %v", cut, have, err)
		}
	}
}

func readAll(w *wire, size int) (all []byte, err error) {
	for p := make([]byte, size); ; {
		n, err := w.Read(p)
		all = append(all, p[:n]...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}
