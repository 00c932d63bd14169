// Package mongodb has the recipe for MongoDB's driver under a Caller (docs/mongodb.md),
// and tests of what it puts on the wire. No MongoDB is to be had in Debian, so they
// run against a scripted server in memory, which is none.
package mongodb
