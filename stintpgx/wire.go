package stintpgx

import (
	"encoding/binary"
	"io"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A wire is between pgx and a connection's bytes. It puts the limit in front of a
// statement, into the same write, and takes the answer to it out of what the server
// says: so pgx runs the statement as it would without us, and the limit costs the
// client next to nothing. As a batch of pgx's it was half of what a call cost here.
//
// The statement and its limit are one implicit transaction, since only the
// statement's own Sync (or Query message) ends it. If the server refuses the limit it
// skips the statement, and pgx gets that error as the statement's.
//
// One goroutine uses a connection, but pgx says goodbye to a broken one from another:
// therefore armed is atomic.
type wire struct {
	r     io.Reader
	w     io.Writer
	named bool // statements may be prepared by name

	armed    atomic.Pointer[limit] // what goes in front of the next statement
	prepared [2]bool               // the server knows limitNames' statement
	out      []byte
	number   [20]byte
	bind     pgproto3.Bind

	answer  string // what is still to come of the answer to the limit: types of messages
	which   int    // the statement that it is the answer to
	refused bool   // the last one was an error

	// What was read ahead while an answer is looked for. It ends in the middle of a
	// message at most while that is ours.
	in      [2048]byte
	at, end int

	// Where in a message pgx is.
	head [5]byte
	have int // of head
	left int // of the message's body
}

var limitNames = [2]string{"stint_limit", "stint_limit_read_only"}
var limitSQL = [2]string{setLimit, setReadOnly}

// arm has l go out before the next statement, until disarm.
func (w *wire) arm(l *limit) {
	w.refused = false
	w.armed.Store(l)
}

func (w *wire) disarm() { w.armed.Store(nil) }

// Write writes what pgx has to say.
func (w *wire) Write(p []byte) (int, error) {
	l := w.armed.Load()
	if l == nil || !runs(p) {
		return w.w.Write(p)
	}
	w.disarm()
	w.out = append(w.before(w.out[:0], l, p), p...)
	if p[0] == 'Q' { // its head has been written
		w.out = append(w.out[:len(w.out)-len(p)], p[5:]...)
	}
	n, err := w.w.Write(w.out)
	n = max(0, n-(len(w.out)-len(p)))
	if cap(w.out) > 64<<10 {
		w.out = nil
	}
	return n, err
}

// runs reports whether messages run a statement: pgx also prepares, and closes.
func runs(p []byte) bool {
	if len(p) > 5 && p[0] == 'P' { // Parse: with a Bind behind it, or to prepare
		if next := 1 + int(binary.BigEndian.Uint32(p[1:])); next > 0 && next < len(p) {
			return p[next] == 'B'
		}
	}
	return len(p) > 5 && (p[0] == 'B' || p[0] == 'Q')
}

// before appends what sets the limit.
func (w *wire) before(b []byte, l *limit, p []byte) []byte {
	value := l.appendValue(w.number[:0])
	w.which = 0
	if l.readOnly {
		w.which = 1
	}
	if p[0] == 'Q' { // simple protocol: several statements in one text
		w.answer = "TC"
		text := limitHead + "'" + string(value) + "'" + [2]string{limitTail, readOnlyTail}[w.which] + ";"
		b = append(b, 'Q')
		b = binary.BigEndian.AppendUint32(b, binary.BigEndian.Uint32(p[1:])+uint32(len(text)))
		return append(b, text...)
	}
	w.bind.PreparedStatement = ""
	if w.named {
		w.bind.PreparedStatement = limitNames[w.which]
	}
	w.answer = "2C"
	if !w.named || !w.prepared[w.which] {
		w.answer = "12C"
		b, _ = (&pgproto3.Parse{Name: w.bind.PreparedStatement, Query: limitSQL[w.which]}).Encode(b) // neither can be too long
	}
	w.bind.Parameters = append(w.bind.Parameters[:0], value)
	b, _ = w.bind.Encode(b)
	return append(b, "E\x00\x00\x00\x09\x00\x00\x00\x00\x00"...) // Execute the unnamed portal, all rows
}

// Read reads what the server says, without its answer to the limit.
func (w *wire) Read(p []byte) (int, error) {
	for w.answer != "" || w.at < w.end {
		if n := w.next(); n > 0 {
			n = copy(p, w.in[w.at:w.at+n])
			w.at += n
			w.follow(p[:n])
			return n, nil
		}
		if w.answer == "" {
			continue
		}
		w.end = copy(w.in[:], w.in[w.at:w.end])
		w.at = 0
		n, err := w.r.Read(w.in[w.end:])
		w.end += n
		if err != nil {
			return 0, err
		}
	}
	n, err := w.r.Read(p)
	w.follow(p[:n])
	return n, err
}

// next drops what is ours of what was read ahead, and returns how many bytes come
// next that are pgx's.
func (w *wire) next() int {
	for w.answer != "" {
		have := w.end - w.at
		switch {
		case w.left > 0: // pgx is in the middle of a message that came unasked
			return min(w.left, have)
		case w.have > 0:
			return min(len(w.head)-w.have, have)
		case have < len(w.head):
			return 0
		}
		kind, whole := w.in[w.at], 1+int(binary.BigEndian.Uint32(w.in[w.at+1:]))
		switch {
		case kind == 'N' || kind == 'S' || kind == 'A': // a notice, a setting, a notification
			return min(whole, have)
		case kind != w.answer[0] || whole < len(w.head) || whole > len(w.in):
			w.answer, w.refused = "", true
		case have < whole:
			return 0
		default:
			if kind == '1' {
				w.prepared[w.which] = w.named
			}
			w.at += whole
			w.answer = w.answer[1:]
		}
	}
	return w.end - w.at
}

// follow takes note of what pgx reads.
func (w *wire) follow(p []byte) {
	for len(p) > 0 {
		if w.left > 0 {
			n := min(w.left, len(p))
			w.left, p = w.left-n, p[n:]
			continue
		}
		n := copy(w.head[w.have:], p)
		w.have, p = w.have+n, p[n:]
		if w.have == len(w.head) {
			w.have, w.left = 0, max(0, int(binary.BigEndian.Uint32(w.head[1:]))-4)
		}
	}
}
