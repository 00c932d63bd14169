// Package stint makes deadlines, retries and load one contract between
// services: how long anybody may still wait, who may try again, and who is let
// in.
//
// # The model
//
// A request enters with a budget of time. A [Gate] turns what is left of it
// into the deadline of the handler's context; a [Caller] bounds each call to a
// dependency by what is left then, and tells the dependency. Nothing on the way
// enlarges it. What crosses from one service to the next is a [Hop], and nothing
// else does; carriers (package stinthttp for HTTP, stintgrpc for gRPC) only write
// and read it.
//
// Three channels, each one way: down goes the context with the deadline and the
// Hop; up comes an [Outcome], judged once, and then an [*Error]; sideways go
// [Event]s to an [Observer].
//
// # The order of a call
//
// There is one legal order, so there is nothing to compose. [Caller.Do] does:
//
//  1. bound: the earliest of the context's deadline less Reserve, and now plus
//     Timeout;
//  2. guard: with less than MinUseful left, refuse. First, because nothing has
//     been taken yet;
//  3. breaker: outside the loop, so that one logical call is one observation
//     however many attempts it takes;
//  4. attempt: guard again, take a bulkhead slot, bound by AttemptTimeout. Inside
//     the loop, so that a call that backs off holds no slot.
//     An attempt that is slow may get company there ([Hedge]);
//  5. send: the carrier writes the Hop at the last moment, so that the time
//     spent until then is subtracted;
//  6. classify: once, for breaker, budget, retry and events alike;
//  7. decide ([Policy.Decide]): class, attempts left, time left for the delay
//     and a useful attempt, safe to repeat, ownership, breaker still closed, and
//     only then a token of the retry budget, so that every refusal is counted
//     under its own reason. No retry means no wait;
//  8. settle: exactly once, also on a panic.
//
// A [Gate] does: read, guard, admit, run, answer, settle. A refusal there, and
// only there, says "not started", which is the proof that even a payment may be
// sent again.
//
// # An overloaded service answers at its capacity
//
// A Gate lets no more into the handler than make it slow, a number that it learns.
// Who finds no place waits if a place can be expected in time, by class, first
// tries first, the earliest deadline next; the rest is refused at once
// ([AdmissionController] has the rules). What lasts (streams, uploads) and what must
// always be answered (probes) are views of the Gate: [Gate.LongRunning], [Gate.Exempt].
//
// # One owner retries
//
// The first layer that could itself repeat this very call claims the path; the
// layers below make one try, except after an attempt that provably never
// started. So three layers of three attempts are three requests at the leaf and
// not nine. A call that must not be repeated claims nothing, and the layer below
// may then retry its own reads. Work that goes on after its request is a path of
// its own: start it with [Background] or [Detach].
//
// # Zero values
//
// Every zero is the safe choice, documented on its field: one attempt, must not
// be repeated, trust nobody but for a shorter deadline, and never "unlimited".
package stint
