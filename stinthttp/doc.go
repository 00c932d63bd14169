// Package stinthttp carries stint's contract over HTTP: a Transport for an
// ordinary http.Client on the way out, and a Handler around an ordinary
// http.Handler on the way in.
//
// What crosses between them is in docs/wire.md. Nothing is buffered on either
// side but what Transport.BufferBody asks for, and nothing is trusted that was
// not said to be: see Peer and stint.Trust.
package stinthttp
