package stinthttp_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/stinthttp"
)

// swallower hands connections on to a server, until it is told to let nothing
// through on those that it has: as when a machine vanishes.
type swallower struct {
	net.Listener
	to    string
	conns atomic.Int64
	gone  atomic.Int64 // connections up to this number are swallowed
}

func (s *swallower) serve(done *sync.WaitGroup) {
	defer done.Done()
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		n := s.conns.Add(1)
		up, err := net.Dial("tcp", s.to)
		if err != nil {
			c.Close()
			return
		}
		pass := func(to, from net.Conn) {
			defer done.Done()
			defer to.Close()
			buf := make([]byte, 4096)
			for {
				k, err := from.Read(buf)
				if err != nil {
					return
				}
				if n > s.gone.Load() {
					to.Write(buf[:k])
				}
			}
		}
		defer up.Close() // at the end, whatever the peers still think of them
		defer c.Close()
		done.Add(2)
		go pass(up, c)
		go pass(c, up)
	}
}

// A reused HTTP/2 connection whose peer has vanished is found within the
// attempt, by pings, and the next attempt makes a new one.
func TestDeadHTTP2Connection(t *testing.T) {
	rs, _ := start(t, "HTTP/2", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "here") }))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &swallower{Listener: l, to: rs.hosts[0]}
	var done sync.WaitGroup
	done.Add(1)
	go s.serve(&done)
	defer done.Wait()
	defer l.Close()
	base := stinthttp.NewTransport(&stinthttp.TransportOptions{Dial: time.Minute, TLSHandshake: time.Minute, Ping: 50 * time.Millisecond, Pong: 500 * time.Millisecond})
	base.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	defer base.CloseIdleConnections()
	caller := newCaller(t, "s", stint.Policy{Timeout: 20 * time.Second, Retry: stint.Retry{Attempts: 2, Base: 1, Cap: 1}}, stint.CallerOptions{})
	client := &http.Client{Transport: &stinthttp.Transport{Caller: caller, Base: base}}
	for i := range 2 {
		status, text, err := fetch(t.Context(), client, http.MethodGet, "https://"+l.Addr().String(), "")
		if status != http.StatusOK || text != "here" || s.conns.Load() != int64(i+1) {
			t.Fatalf("call %d: %d %q, %v, over %d connections so far", i+1, status, text, err, s.conns.Load())
		}
		s.gone.Store(1)
	}
}

// NewClient asks often enough for its policy's attempts.
func TestNewClientFindsDeadConnectionsInTime(t *testing.T) {
	for _, c := range []struct {
		policy     stint.Policy
		ping, pong time.Duration
	}{
		{stint.Policy{}, 2 * time.Second, time.Second},
		{stint.Policy{Timeout: 4 * time.Second}, time.Second, time.Second},
		{stint.Policy{Timeout: time.Minute, Retry: stint.Retry{AttemptTimeout: time.Second}}, 250 * time.Millisecond, 500 * time.Millisecond},
		{stint.Policy{Timeout: 500 * time.Millisecond}, 125 * time.Millisecond, 250 * time.Millisecond},
		{stint.Policy{Timeout: 20 * time.Millisecond}, 100 * time.Millisecond, 250 * time.Millisecond},
	} {
		client := stinthttp.NewClient(newCaller(t, "s", c.policy, stint.CallerOptions{}), stinthttp.PeerStint)
		h2 := client.Transport.(*stinthttp.Transport).Base.(*http.Transport).HTTP2
		if h2.SendPingTimeout != c.ping || h2.PingTimeout != c.pong {
			t.Errorf("%+v: asks after %v and waits %v, want %v and %v", c.policy, h2.SendPingTimeout, h2.PingTimeout, c.ping, c.pong)
		}
	}
}
