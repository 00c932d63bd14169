// Package stinttest helps to test code that keeps deadlines and retries: an
// in-memory network on which HTTP/1.1 and HTTP/2 run in the virtual time of
// testing/synctest, a dependency that does what a script says, a recorder of
// events, and DelayMatrix, which finds the layer at which a chain of services
// stops passing on its deadline.
//
// It is for tests only.
package stinttest
