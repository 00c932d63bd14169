package policy

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/stint-go/stint"
)

// Caller returns a Caller for the named dependency under this file's policy. opts
// may be nil; an empty Service in it is this file's.
func (f *File) Caller(dependency string, opts *stint.CallerOptions) (*stint.Caller, error) {
	p, err := f.Policy(dependency)
	if err != nil {
		return nil, err
	}
	var o stint.CallerOptions
	if opts != nil {
		o = *opts
	}
	if o.Service == "" {
		o.Service = f.Service
	}
	return stint.NewCaller(dependency, p, &o)
}

// GateOptions returns the numbers of entry as a Gate takes them. A zero is
// stint.GateOptions' default. The error says that the file has no entry.
func (f *File) GateOptions() (stint.GateOptions, error) {
	e := f.Entry
	if e == nil {
		return stint.GateOptions{}, fmt.Errorf("policy: %s: the file has no entry, and so no Gate; write an entry block", f.path)
	}
	o := stint.GateOptions{
		DefaultTimeout: e.Deadline, MaxTimeout: e.MaxDeadline, ClockSkew: e.ClockSkew,
		MinUseful: e.MinUseful, Reserve: e.Reserve,
		Limit: int(e.Limit), MinLimit: e.MinLimit, MaxLimit: e.MaxLimit,
		ObserveOnly: e.ObserveOnly, MaxRefused: float64(e.MaxRefused),
	}
	if e.Trust == TrustPeers {
		o.Trust = stint.TrustPeers
	}
	return o, nil
}

// Gate returns a Gate for this service under this file's entry. with brings the
// Observer and the Logger, and may be nil; numbers in it are an error, since the
// file has them.
func (f *File) Gate(with *stint.GateOptions) (*stint.Gate, error) {
	o, err := f.gateOptions(with)
	if err != nil {
		return nil, err
	}
	return stint.NewGate(f.Service, &o)
}

// gateOptions are GateOptions with what a file can't hold.
func (f *File) gateOptions(with *stint.GateOptions) (stint.GateOptions, error) {
	o, err := f.GateOptions()
	if err != nil || with == nil {
		return o, err
	}
	numbers := *with // an Observer may be of a kind that can't be compared
	numbers.Observer, numbers.Logger = nil, nil
	if numbers != (stint.GateOptions{}) {
		return o, errors.New("policy: a Gate of a policy file takes an Observer and a Logger; its numbers stand in the file")
	}
	o.Observer, o.Logger = with.Observer, with.Logger
	return o, nil
}

// quiet are options for a Gate that is made to have its options checked.
func quiet() *stint.GateOptions { return &stint.GateOptions{Logger: slog.New(slog.DiscardHandler)} }
