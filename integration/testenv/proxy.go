package testenv

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy passes TCP connections on to a server, and can be a network that does
// not. Its methods may be called at the same time.
type Proxy struct {
	// Addr is the host and port that it listens on.
	Addr string

	network, server string
	listener        *net.TCPListener
	all             sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	requests chan struct{} // open while what clients send is held; nil: it passes
	replies  chan struct{} // the same for what the server sends
	delay    time.Duration // of all that is sent
	cut      bool          // the next reply ends its connection instead
	opened   int
	killed   bool
}

// StartProxy starts one that ends with the test, in front of the server at that
// address.
func StartProxy(t testing.TB, network, server string) *Proxy {
	t.Helper()
	p := &Proxy{network: network, server: server, listener: Listen(t), conns: map[net.Conn]bool{}}
	p.Addr = p.listener.Addr().String()
	p.all.Go(p.accept)
	t.Cleanup(func() {
		p.Kill()
		p.all.Wait()
	})
	return p
}

// DSN is a PostgreSQL connection string for the named database, through p.
func (p *Proxy) DSN(database string) string {
	host, port, _ := net.SplitHostPort(p.Addr)
	return fmt.Sprintf("host=%s port=%s user=stint dbname=%s sslmode=disable", host, port, database)
}

// MariaDBDSN is a data source name of go-sql-driver/mysql for the named database of
// a MariaDB, through p.
func (p *Proxy) MariaDBDSN(database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s", p.Addr, database)
}

// Freeze holds what both sides send, the ends of connections included, and lets
// nobody in: no side sees anything but silence.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = held(p.requests)
	p.replies = held(p.replies)
}

// HoldReplies holds what the server sends; what clients send arrives.
func (p *Proxy) HoldReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = held(p.replies)
}

func held(c chan struct{}) chan struct{} {
	if c == nil {
		c = make(chan struct{})
	}
	return c
}

// Delay makes what both sides send from now on arrive d later; zero ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *Proxy) delayed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// Thaw lets everything pass again, in order and with nothing lost.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thaw()
}

func (p *Proxy) thaw() {
	for _, c := range []*chan struct{}{&p.requests, &p.replies} {
		if *c != nil {
			close(*c)
			*c = nil
		}
	}
}

// CutReply resets the connection over which the server sends the next reply, in
// its place.
func (p *Proxy) CutReply() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
}

// Opened is how many connections clients have opened.
func (p *Proxy) Opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Kill resets every connection, and lets nobody in any more.
func (p *Proxy) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	p.listener.Close()
	for c := range p.conns {
		reset(c)
	}
	p.thaw()
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.opened++
		p.mu.Unlock()
		if p.keep(client) {
			p.all.Go(func() { p.serve(client) })
		}
	}
}

// keep remembers a connection for Kill.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		reset(c)
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	p.wait(&p.requests)
	server, err := net.Dial(p.network, p.server)
	if err != nil || !p.keep(server) {
		reset(client)
		return
	}
	defer p.forget(server)
	var both sync.WaitGroup
	both.Go(func() { p.pass(server, client, &p.requests) })
	both.Go(func() { p.pass(client, server, &p.replies) })
	both.Wait()
}

// pass copies one direction, and closes both connections at its end.
func (p *Proxy) pass(to, from net.Conn, gate *chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		time.Sleep(p.delayed())
		p.wait(gate)
		if n > 0 && gate == &p.replies && p.cuts() {
			reset(to)
			from.Close()
			return
		}
		if n > 0 {
			if _, errWrite := to.Write(buf[:n]); err == nil {
				err = errWrite
			}
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

// cuts reports whether this reply is the one to cut.
func (p *Proxy) cuts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.cut
	p.cut = false
	return cut
}

// wait waits until a direction is open.
func (p *Proxy) wait(gate *chan struct{}) {
	for {
		p.mu.Lock()
		held := *gate
		p.mu.Unlock()
		if held == nil {
			return
		}
		<-held
	}
}
