package stinttest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// connBuffer is how many bytes each direction of a connection holds before a
// write waits for a read, as the kernel's buffers do. Without them (net.Pipe) an
// HTTP/2 client that writes to a peer which reads no more waits with its lock
// held, and whoever waits for a lock keeps virtual time from moving on. It is
// twice the window that a client has before the peer has said a word.
const connBuffer = 128 << 10

// newConn returns the two ends of a connection to host.
func newConn(host string) (client, server net.Conn) {
	up, down := newStream(), newStream()
	return &conn{in: down, out: up, addr: memAddr(host)}, &conn{in: up, out: down, addr: memAddr(host)}
}

// conn is one end of a connection. What was written before it was closed can
// still be read at the other end.
type conn struct {
	in, out *stream
	addr    memAddr
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

func (c *conn) Close() error {
	c.in.close(false)
	c.out.close(true)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.addr }
func (c *conn) RemoteAddr() net.Addr { return c.addr }

func (c *conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.in.until(&c.in.reading, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.until(&c.out.writing, t) }

// stream is one direction. All that waits in it waits on changed, a sync.Cond,
// as a synctest bubble wants it.
type stream struct {
	mu               sync.Mutex
	changed          *sync.Cond
	data             []byte // what is under way: a part of kept
	kept             []byte
	readerGone, done bool // the ends that closed it: the reader's, the writer's
	reading, writing limit
}

// limit is a read or a write deadline.
type limit struct {
	timer  *time.Timer
	passed bool
}

func newStream() *stream {
	s := new(stream)
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerGone:
			return 0, net.ErrClosed
		case s.reading.passed:
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(s.data) > 0:
			n := copy(p, s.data)
			if s.data = s.data[n:]; len(s.data) == 0 {
				s.data = s.kept[:0]
			}
			s.changed.Broadcast()
			return n, nil
		case s.done:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.done:
			return n, net.ErrClosed
		case s.readerGone:
			return n, io.ErrClosedPipe // as a reset by the peer
		case s.writing.passed:
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		}
		if room := connBuffer - len(s.data); room > 0 {
			m := min(room, len(p)-n)
			s.append(p[n : n+m])
			n += m
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
	}
}

// append adds to data, in the same memory as long as it has room: streams of many
// megabytes pass through here.
func (s *stream) append(p []byte) {
	if cap(s.data)-len(s.data) < len(p) {
		if cap(s.kept) < len(s.data)+len(p) {
			s.kept = make([]byte, 0, min(2*(len(s.data)+len(p)), connBuffer))
		}
		s.data = append(s.kept[:0], s.data...) // copies forward, also within kept
	}
	s.data = append(s.data, p...)
}

// close is called by the writer's end, which leaves what it wrote, or by the
// reader's, which throws it away.
func (s *stream) close(byWriter bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if byWriter {
		s.done = true
		s.writing.stop()
	} else {
		s.readerGone, s.data, s.kept = true, nil, nil
		s.reading.stop()
	}
	s.changed.Broadcast()
}

// until sets one of the stream's two deadlines; the zero time takes it away.
func (s *stream) until(l *limit, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.stop()
	l.passed = false
	if (l == &s.reading && s.readerGone) || (l == &s.writing && s.done) {
		return net.ErrClosed
	}
	if t.IsZero() {
		return nil
	}
	left := time.Until(t)
	if left <= 0 {
		l.passed = true
		s.changed.Broadcast()
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.timer == timer { // not one that was replaced as it fired
			l.passed = true
			s.changed.Broadcast()
		}
	})
	l.timer = timer
	return nil
}

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
