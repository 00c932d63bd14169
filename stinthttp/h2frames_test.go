package stinthttp_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
)

// Frame types, flags and error codes of HTTP/2 (RFC 9113, 6 and 7), as far as
// the tests speak them.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	flagAck, flagEndStream, flagEndHeaders = 0x1, 0x1, 0x4

	codeNone, codeProtocol, codeInternal, codeRefused = 0, 1, 2, 7
)

// frameLimit is after how many requests a framePeer only says OK: net/http
// repeats some without end and without a wait, in which virtual time stands still.
const frameLimit = 50

const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// A framePeer is an HTTP/2 server that does with a request what net/http's never
// would. It does not decode headers, and answers each request as its function
// says, once all of it is there.
type framePeer struct {
	answer func(c *frameConn, r frameRequest)

	mu       sync.Mutex
	requests []frameRequest
	conns    []*frameConn
}

// A frameRequest is one request that arrived, with its number among all.
type frameRequest struct {
	number int
	conn   int
	stream uint32
	body   string
}

// serveFrames makes a framePeer of l until the test ends.
func serveFrames(t *testing.T, l net.Listener, answer func(*frameConn, frameRequest)) *framePeer {
	p := &framePeer{answer: answer}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			fc := &frameConn{Conn: c, peer: p, number: len(p.conns) + 1}
			p.conns = append(p.conns, fc)
			p.mu.Unlock()
			running.Go(fc.serve)
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		running.Wait()
	})
	return p
}

// arrived returns the requests so far, in order.
func (p *framePeer) arrived() []frameRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// A frameConn is one connection to a framePeer.
type frameConn struct {
	net.Conn
	peer   *framePeer
	number int
}

func (c *frameConn) serve() {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(clientPreface))); err != nil {
		return
	}
	c.frame(frameSettings, 0, 0)
	bodies := make(map[uint32]string)
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == frameSettings && flags&flagAck == 0:
			c.frame(frameSettings, flagAck, 0)
		case kind == framePing && flags&flagAck == 0:
			c.frame(framePing, flagAck, 0, payload...)
		case kind == frameData:
			bodies[stream] += string(payload) // net/http does not pad
		}
		if (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0 {
			r := frameRequest{conn: c.number, stream: stream, body: bodies[stream]}
			c.peer.mu.Lock()
			r.number = len(c.peer.requests) + 1
			c.peer.requests = append(c.peer.requests, r)
			c.peer.mu.Unlock()
			if r.number > frameLimit {
				c.ok(r)
			} else {
				c.peer.answer(c, r)
			}
		}
	}
}

func (c *frameConn) frame(kind, flags byte, stream uint32, payload ...byte) {
	n := len(payload)
	f := append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, binary.BigEndian.AppendUint32(nil, stream)...)
	c.Write(append(f, payload...))
}

// ok answers 200 without a body.
func (c *frameConn) ok(r frameRequest) {
	c.frame(frameHeaders, flagEndHeaders|flagEndStream, r.stream, status200)
}

// begin answers 200 and leaves the body to come.
func (c *frameConn) begin(r frameRequest) {
	c.frame(frameHeaders, flagEndHeaders, r.stream, status200)
}

// status200 is ":status: 200", entry 8 of HPACK's static table, indexed.
const status200 = 0x80 | 8

// reset ends the request's stream.
func (c *frameConn) reset(r frameRequest, code uint32) {
	c.frame(frameReset, 0, r.stream, binary.BigEndian.AppendUint32(nil, code)...)
}

// goAway says that streams above last were not looked at, and never will be.
func (c *frameConn) goAway(last, code uint32) {
	c.frame(frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code)...)
}
