package mongodb

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint/stinttest"
)

// A fake is the only member of a replica set, in memory: it speaks as much of
// MongoDB's wire protocol as the driver needs to hold it for one, and answers each
// command as the test says. It is no MongoDB: it keeps nothing, and knows nothing of
// maxTimeMS, transactions, or labels but what the test has it say. What it shows is what
// the driver puts on the wire, and what it makes of the answers.
type fake struct {
	network *stinttest.Network
	reply   func(name string, n int) any // n: the how manieth of that name, from 1

	mu       sync.Mutex
	commands []bson.Raw // without the driver's own (hello, ping, endSessions)
}

// What a fake does in place of an answer.
type (
	silence struct{} // none, ever
	cut     struct{} // the connection ends
)

// ok is the answer that says no more.
var ok = bson.D{{Key: "ok", Value: 1}}

// failure is an answer with an error.
func failure(code int32, labels ...string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "scripted"}, {Key: "errorLabels", Value: labels}}
}

// found is the answer to find and aggregate.
func found(docs ...any) bson.D {
	cursor := bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "shop.orders"}, {Key: "firstBatch", Value: append(bson.A{}, docs...)}}
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: cursor}}
}

const host = "mongo"

func serve(t testing.TB, reply func(name string, n int) any) *fake {
	t.Helper()
	f := &fake{network: stinttest.NewNetwork(), reply: reply}
	l, err := f.network.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				if err := f.talk(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Error(err)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return f
}

// seen returns the commands of that name, in order.
func (f *fake) seen(name string) (commands []bson.Raw) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.commands {
		if nameOf(c) == name {
			commands = append(commands, c)
		}
	}
	return commands
}

func nameOf(command bson.Raw) string {
	return command.Index(0).Key()
}

// The protocol's two kinds of messages: the driver's first word on a connection may
// be a query of old, whose answer is a reply.
const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

// talk answers what comes over one connection.
func (f *fake) talk(c net.Conn) error {
	for {
		var head [16]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		body := make([]byte, binary.LittleEndian.Uint32(head[:])-16)
		if _, err := io.ReadFull(c, body); err != nil {
			return err
		}
		id, op := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[12:])
		var command bson.Raw
		switch op {
		case opQuery: // flags, a name that ends with 0, two numbers, a document
			command = bson.Raw(body[4+slices.Index(body[4:], 0)+1+8:])
		case opMsg: // flags, and sections: the command is of kind 0
			command = section(body[4:])
		}
		if command.Validate() != nil {
			return errors.New("a message that the fake can't read")
		}
		answer := f.answer(command)
		switch answer.(type) {
		case silence:
			continue
		case cut:
			return nil
		}
		doc, err := bson.Marshal(answer)
		if err != nil {
			return err
		}
		var m []byte
		if op == opQuery {
			m = message(id, opReply, append(binary.LittleEndian.AppendUint32(make([]byte, 16), 1), doc...)) // flags, cursor, from, one
		} else {
			m = message(id, opMsg, append(make([]byte, 5), doc...)) // flags, kind 0
		}
		if _, err := c.Write(m); err != nil {
			return err
		}
	}
}

// section finds the command among a message's sections.
func section(b []byte) bson.Raw {
	for len(b) > 5 {
		n := binary.LittleEndian.Uint32(b[1:])
		if b[0] == 0 {
			return bson.Raw(b[1 : 1+n])
		}
		b = b[1+n:]
	}
	return nil
}

func message(to, op uint32, body []byte) []byte {
	m := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
	m = binary.LittleEndian.AppendUint32(m, 1)
	m = binary.LittleEndian.AppendUint32(m, to)
	m = binary.LittleEndian.AppendUint32(m, op)
	return append(m, body...)
}

// answer makes the answer to one command.
func (f *fake) answer(command bson.Raw) any {
	switch name := nameOf(command); name {
	case "hello", "isMaster", "ismaster":
		return bson.D{{Key: "ok", Value: 1}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "helloOk", Value: true},
			{Key: "setName", Value: "rs"}, {Key: "me", Value: host + ":27017"}, {Key: "primary", Value: host + ":27017"}, {Key: "hosts", Value: bson.A{host + ":27017"}},
			{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 21}, {Key: "logicalSessionTimeoutMinutes", Value: 30},
			{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48 << 20}, {Key: "maxWriteBatchSize", Value: 100000}}
	case "ping", "endSessions":
		return ok
	default:
		f.mu.Lock()
		f.commands = append(f.commands, slices.Clone(command))
		n := 0
		for _, c := range f.commands {
			if nameOf(c) == name {
				n++
			}
		}
		f.mu.Unlock()
		return f.reply(name, n)
	}
}
