package lab

import (
	"context"
	"net"
	"sync"
)

// A network carries connections, and can fall silent: then no side sees anything
// of the other any more, not even its end. The zero value carries all. Its methods
// may be called at the same time.
type network struct {
	all sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // open while it is silent
}

// freeze makes it silent.
func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen == nil {
		n.frozen = make(chan struct{})
	}
}

// thaw delivers what has been held.
func (n *network) thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen != nil {
		close(n.frozen)
		n.frozen = nil
	}
}

// pass waits while it is silent.
func (n *network) pass(ctx context.Context) error {
	for {
		n.mu.Lock()
		frozen := n.frozen
		n.mu.Unlock()
		if frozen == nil {
			return nil
		}
		select {
		case <-frozen:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dial is net.Dialer's DialContext, over this network.
func (n *network) dial(ctx context.Context, kind, addr string) (net.Conn, error) {
	if err := n.pass(ctx); err != nil {
		return nil, err
	}
	server, err := new(net.Dialer).DialContext(ctx, kind, addr)
	if err != nil {
		return nil, err
	}
	client, inner := net.Pipe()
	n.all.Go(func() { n.carry(inner, server) })
	n.all.Go(func() { n.carry(server, inner) })
	return carried{client, server.RemoteAddr()}, nil
}

// carry copies one direction, its end included.
func (n *network) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 4<<10)
	for {
		k, err := from.Read(buf)
		n.pass(context.Background())
		if _, errWrite := to.Write(buf[:k]); err != nil || errWrite != nil {
			return
		}
	}
}

// A carried connection says whom it reaches: pgx asks there to have a query
// cancelled.
type carried struct {
	net.Conn
	remote net.Addr
}

func (c carried) RemoteAddr() net.Addr { return c.remote }
