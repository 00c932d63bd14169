// Package orders runs the tests of examples/orders against PostgreSQL and Redis.
package orders
