// Package emit writes the policies of a file's dependencies for a gRPC client, an
// Envoy, an Istio mesh or a Gateway API, and reads what such configurations say
// already.
//
// # Who carries it out
//
// What is emitted has retries, timeouts and limits in it that stint has in the
// process. So it is for a service whose calls the mesh is to look after instead
// of the library. A Caller that repeats under a mesh which repeats as well
// multiplies: three attempts each are nine. A service that keeps its Caller's
// retries exports a file with owner: never, or retry: none, in it. Then the
// limits are emitted, and where silence would mean retries (Istio's is two), an
// explicit zero.
//
// No target knows who owns the retries of a path, and so owner: auto and always
// are the same to all of them: the mesh repeats. It repeats only what may be
// repeated: what the file declares safe, GET and the like by their method, and
// where the dependency honours idempotency keys, requests that carry one. In a
// gRPC service config only what is declared safe.
//
// # What is lost
//
// Each key that the file sets, and each default that matters, has a row in the
// document: exact, approximate or lost. A loss has a code, which stays the same:
//
//	X-LOSS-AFTER-TIMEOUT      timeouts can't be told from other failures
//	X-LOSS-ALL-CALLERS        the policy holds for other callers, too
//	X-LOSS-ATTEMPT-TIMEOUT    attempts have no limit of their own
//	X-LOSS-ATTEMPTS-CUT       gRPC makes no more than 5 attempts
//	X-LOSS-BACKOFF            waits grow otherwise
//	X-LOSS-BREAKER            no breaker, or one that takes single hosts out
//	X-LOSS-BUDGET             another budget for retries, or none
//	X-LOSS-CALLER-DEADLINE    the caller's time left is not looked at
//	X-LOSS-CODE               an outcome has no name there
//	X-LOSS-CONCURRENCY        no limit of calls at once
//	X-LOSS-DEADLINE-EXCEEDED  repeating it has no effect after the call's own limit
//	X-LOSS-DEFAULT-TIMEOUT    a limit is written where the file states none
//	X-LOSS-EXPERIMENTAL       a field that standard installations drop
//	X-LOSS-HEDGE              no copies
//	X-LOSS-JITTER             waits vary less, or nobody says how
//	X-LOSS-KEY                idempotency keys are not looked at
//	X-LOSS-KIND               a store, or HTTP in gRPC's words: it is left out
//	X-LOSS-MATCH              an operation can't be told apart
//	X-LOSS-MIN-USEFUL         attempts start with no useful time left
//	X-LOSS-NAME               the callee's name can't be a host's
//	X-LOSS-NOT-STARTED        unsafe requests that never started are not repeated
//	X-LOSS-OWNER              nobody is told who owns the retries
//	X-LOSS-RESERVE            no time is kept back
//	X-LOSS-RETRY-AFTER        the server's word when to come back is not kept
//	X-LOSS-ROUNDED            whole milliseconds only
//	X-LOSS-UNSAFE             no retries, since nothing says that they are safe
//
// Hosts are the names of the callees' services: the dependency's service, or its
// own name. Ports stand in no policy, so that those in a document are examples.
package emit
