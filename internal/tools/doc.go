// Package tools pins, in a module of its own, the tools that checks of this repository run.
package tools
