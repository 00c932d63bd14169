package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
)

// docs/mongodb.md shows this file, one block after the other; a test compares them.

// clientOptions are those of a client whose commands a Caller bounds and repeats.
func clientOptions(uri string, c *stint.Caller) *options.ClientOptions {
	o := options.Client().ApplyURI(uri) // first, since the URI may say otherwise
	o.SetRetryReads(false).SetRetryWrites(false).SetMaxAdaptiveRetries(0)
	o.SetServerSelectionTimeout(time.Second)      // else 30 s; a server that was lost is looked for after 0.5 s, not before
	o.SetConnectTimeout(500 * time.Millisecond)   // else 30 s
	o.SetTimeout(time.Second)                     // of what is no call; the deadline of a context goes before it
	o.SetMaxPoolSize(uint64(c.Policy().Bulkhead)) // a place of the bulkhead is a connection
	o.SetMonitor(&event.CommandMonitor{Started: started})
	return o
}

// A store is a database under a Caller.
type store struct {
	caller *stint.Caller
	db     *mongo.Database
}

type sentKey struct{}

// started counts what the driver sends. It is called before each sending.
func started(ctx context.Context, _ *event.CommandStartedEvent) {
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Int64); ok {
		sent.Add(1)
	}
}

// unsent is the error of an attempt of which nothing was sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// do makes f, which sends one command or makes one transaction, a call.
func (s *store) do(ctx context.Context, op stint.Op, f func(context.Context) error) error {
	return s.caller.Do(ctx, op, func(ctx context.Context) error {
		var sent atomic.Int64
		err := f(context.WithValue(ctx, sentKey{}, &sent))
		if err != nil && sent.Load() == 0 {
			return unsent{err}
		}
		return err
	})
}

// An order is a document.
type order struct {
	ID    string `bson:"_id"`
	Total int    `bson:"total"`
}

// insert must not be repeated, since the second answer would be "duplicate key".
func (s *store) insert(ctx context.Context, o order) error {
	return s.do(ctx, stint.Op{Name: "orders.insert"}, func(ctx context.Context) error {
		_, err := s.db.Collection("orders").InsertOne(ctx, o)
		return err
	})
}

// put may be: once or twice, the order is then as it says.
func (s *store) put(ctx context.Context, o order) error {
	return s.do(ctx, stint.Op{Name: "orders.put", Safety: stint.Idempotent}, func(ctx context.Context) error {
		_, err := s.db.Collection("orders").ReplaceOne(ctx, bson.D{{Key: "_id", Value: o.ID}}, o, options.Replace().SetUpsert(true))
		return err
	})
}

// get returns mongo.ErrNoDocuments, as ever, where there is none.
func (s *store) get(ctx context.Context, id string) (o order, err error) {
	err = s.do(ctx, stint.Op{Name: "orders.get", Safety: stint.ReadOnly}, func(ctx context.Context) error {
		return s.db.Collection("orders").FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&o)
	})
	return o, err
}

// above is a Find that the server stops in time, too: the driver gives what is sent by
// RunCommandCursor the limit that it leaves out of Find and Aggregate. It holds for the
// cursor's whole life, so all is read within the call.
func (s *store) above(ctx context.Context, total int) (orders []order, err error) {
	err = s.do(ctx, stint.Op{Name: "orders.above", Safety: stint.ReadOnly}, func(ctx context.Context) error {
		orders = nil // of an attempt before
		cursor, err := s.db.RunCommandCursor(ctx, bson.D{
			{Key: "find", Value: "orders"},
			{Key: "filter", Value: bson.D{{Key: "total", Value: bson.D{{Key: "$gt", Value: total}}}}},
		})
		if err != nil {
			return err
		}
		return cursor.All(ctx, &orders)
	})
	return orders, err
}

// errOutcomeUnknown: the transaction may have been committed, or may yet be.
var errOutcomeUnknown = errors.New("whether it was committed is not known")

// commitGrace is how long beyond its deadline a commit that was sent is waited for.
const commitGrace = time.Second

// transaction runs f in one. All of it is done again only where the server has aborted it.
func (s *store) transaction(ctx context.Context, op stint.Op, f func(context.Context) error) error {
	return s.do(ctx, op, func(ctx context.Context) error {
		session, err := s.db.Client().StartSession()
		if err != nil {
			return err
		}
		if err = session.StartTransaction(); err == nil {
			err = f(mongo.NewSessionContext(ctx, session))
		}
		if err == nil { // too late to be of use: abort, while that is still safe
			err = stint.Require(ctx, s.caller.PolicyFor(op).MinUseful)
		}
		left, _ := stint.Remaining(ctx)
		later, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(left, 0)+commitGrace)
		if err != nil {
			go func() { // an abort, which nobody needs to wait for
				defer cancel()
				session.EndSession(later)
			}()
			return err
		}
		defer cancel()
		if err = session.CommitTransaction(later); err != nil {
			if labelled(err, "UnknownTransactionCommitResult") || mongo.IsTimeout(err) {
				// The session is left as it is: to end it would send an abort after the commit.
				return fmt.Errorf("%w: %w", errOutcomeUnknown, err)
			}
		}
		session.EndSession(later)
		return err
	})
}

// classify is CallerOptions.Classify.
func classify(_ context.Context, err error) stint.Outcome {
	_, nothing := errors.AsType[unsent](err)
	var cleared interface{ Retryable() bool } // the driver's word for a pool whose server has failed
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return stint.Outcome{Kind: stint.OK}
	case errors.Is(err, errOutcomeUnknown):
		return stint.Outcome{Kind: stint.Failed, Code: "outcome_unknown"}
	case labelled(err, "SystemOverloadedError"):
		return stint.Outcome{Kind: stint.Overloaded, Code: "overloaded"}
	case coded(err, 50): // the server's own limit, which the driver made of the deadline
		return stint.Outcome{Kind: stint.TimedOut, Code: "max_time"}
	case mongo.IsTimeout(err):
		return stint.Outcome{Kind: stint.TimedOut, NotStarted: nothing, Code: "timeout"}
	case mongo.IsNetworkError(err), nothing && errors.As(err, &cleared) && cleared.Retryable():
		return stint.Outcome{Kind: stint.Transient, NotStarted: nothing, Code: "network"}
	case coded(err, 10107, 13435): // it is not the primary (any more)
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "not_primary"}
	case labelled(err, "TransientTransactionError"): // it was aborted: all of it may be done again
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "transaction"}
	case labelled(err, "NoWritesPerformed"):
		return stint.Outcome{Kind: stint.Transient, NotStarted: true, Code: "no_writes"}
	case labelled(err, "RetryableWriteError"), coded(err, 6, 7, 89, 91, 134, 189, 262, 9001, 11600, 11602, 13436):
		return stint.Outcome{Kind: stint.Transient, Code: "unavailable"}
	case coded(err, 2, 9, 13, 18, 26, 48, 59, 66, 72, 121, 11000): // the command's fault
		return stint.Outcome{Kind: stint.Rejected, Code: "rejected"}
	case nothing: // the driver refused it (a document that is none)
		return stint.Outcome{Kind: stint.Rejected, NotStarted: true, Code: "refused"}
	}
	return stint.Outcome{Kind: stint.Failed, Code: "error"}
}

func labelled(err error, label string) bool {
	var e mongo.LabeledError
	return errors.As(err, &e) && e.HasErrorLabel(label)
}

func coded(err error, codes ...int) bool {
	var e mongo.ServerError
	return errors.As(err, &e) && slices.ContainsFunc(codes, e.HasErrorCode)
}
