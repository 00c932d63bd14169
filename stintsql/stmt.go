package stintsql

import (
	"context"
	"database/sql/driver"
	"fmt"
)

// stmt is a prepared statement.
type stmt struct {
	driver.Stmt
	conn    *conn
	query   string // as its user has it
	limited bool   // its first argument is the limit
}

// NumInput returns how many arguments its user has to give.
func (s *stmt) NumInput() int {
	n := s.Stmt.NumInput()
	if s.limited && n > 0 {
		n--
	}
	return n
}

// Exec is not there: it has no context.
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errContexts }

// Query is not there: it has no context.
func (s *stmt) Query([]driver.Value) (driver.Rows, error) { return nil, errContexts }

// ExecContext runs the statement; see the package.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.newCall(ctx, executing, args).doExec(ctx)
}

// QueryContext runs the statement; see the package.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.newCall(ctx, querying, args).doQuery(ctx)
}

func (s *stmt) newCall(ctx context.Context, step step, args []driver.NamedValue) *call {
	if s.limited {
		args = append(make([]driver.NamedValue, 1, 1+len(args)), args...)
		for i := range args {
			args[i].Ordinal = i + 1
		}
	}
	c := s.conn.statement(ctx, step, s.query, args)
	c.stmt = s
	return c
}

// CheckNamedValue checks an argument as database/sql does with the driver's own
// statement: by its checker or the connection's, and by its column converter.
func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if s.limited {
		v.Ordinal++
		defer func() { v.Ordinal-- }()
	}
	c, ok := s.Stmt.(driver.NamedValueChecker)
	if !ok {
		c, ok = s.conn.base.(driver.NamedValueChecker)
	}
	if ok {
		if err := c.CheckNamedValue(v); err != driver.ErrSkip {
			return err
		}
	}
	return convert(s.Stmt, v)
}

// convert has the statement's column converter convert an argument, if there is one.
func convert(s driver.Stmt, v *driver.NamedValue) (err error) {
	c, ok := s.(interface { // driver.ColumnConverter, which is deprecated and still there
		ColumnConverter(int) driver.ValueConverter
	})
	if n := s.NumInput(); !ok || n >= 0 && v.Ordinal > n {
		return driver.ErrSkip // database/sql has a rule for all, and counts them
	}
	if valuer, ok := v.Value.(driver.Valuer); ok {
		// The default converter knows how to call a Valuer.
		if v.Value, err = driver.DefaultParameterConverter.ConvertValue(valuer); err != nil {
			return err
		}
	}
	v.Value, err = c.ColumnConverter(v.Ordinal - 1).ConvertValue(v.Value)
	return err
}

func (s *stmt) executor() (driver.StmtExecContext, error) {
	if e, ok := s.Stmt.(driver.StmtExecContext); ok {
		return e, nil
	}
	return nil, errStmt(s.Stmt)
}

func (s *stmt) querier() (driver.StmtQueryContext, error) {
	if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
		return q, nil
	}
	return nil, errStmt(s.Stmt)
}

func errStmt(s driver.Stmt) error {
	return fmt.Errorf("stintsql: %T takes no contexts (driver.StmtExecContext, driver.StmtQueryContext), so nothing would end what it waits for: "+
		"use a driver that does", s)
}

// boundStmt is a statement that was prepared for one call.
type boundStmt struct {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// split finds the methods with a context.
func (s *boundStmt) split() error {
	var ok, ok2 bool
	s.StmtExecContext, ok = s.Stmt.(driver.StmtExecContext)
	s.StmtQueryContext, ok2 = s.Stmt.(driver.StmtQueryContext)
	if !ok || !ok2 {
		return errStmt(s.Stmt)
	}
	return nil
}

// check checks the arguments as database/sql would; those that the connection has
// checked already stay what they are.
func (s *boundStmt) check(args []driver.NamedValue) error {
	if n := s.NumInput(); n >= 0 && n != len(args) {
		return fmt.Errorf("stintsql: expected %d arguments, got %d", n, len(args))
	}
	c, ok := s.Stmt.(driver.NamedValueChecker)
	for i := range args {
		if ok {
			if err := c.CheckNamedValue(&args[i]); err == nil {
				continue
			} else if err != driver.ErrSkip {
				return err
			}
		}
		if err := convert(s.Stmt, &args[i]); err != nil && err != driver.ErrSkip {
			return err
		}
	}
	return nil
}
