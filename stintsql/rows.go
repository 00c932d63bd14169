package stintsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// rows are a statement's rows. They hold the call until they are closed. The first row
// has been read when the call succeeds, so that what goes wrong until then is the
// call's error.
type rows struct {
	driver.Rows
	ctx   context.Context // the attempt's
	call  *call
	stmt  driver.Stmt // prepared for this call; may be nil
	ahead bool        // the first row, or the end, is still to be handed out
	row   []driver.Value
	end   error // io.EOF, once there are no more
	over  bool
}

// open runs the query.
func (r *rows) open(ctx context.Context, c *call, text string) (err error) {
	*r = rows{ctx: ctx, call: c}
	if c.stmt != nil {
		q, err := c.stmt.querier()
		if err != nil {
			return err
		}
		c.sent = true
		r.Rows, err = q.QueryContext(ctx, c.args)
		if err != nil {
			return err
		}
		return r.first()
	}
	c.sent = true
	if r.Rows, err = c.conn.queryer.QueryContext(ctx, text, c.args); err == driver.ErrSkip {
		c.sent = false
		s, err := c.prepare(ctx, text)
		if err != nil {
			return err
		}
		c.sent = true
		if r.Rows, err = s.QueryContext(ctx, c.args); err != nil {
			s.Close()
			return err
		}
		r.stmt = s.Stmt
	} else if err != nil {
		return err
	}
	return r.first()
}

// first reads the first row.
func (r *rows) first() error {
	n := len(r.Rows.Columns())
	if n == 0 {
		return nil
	}
	r.row, r.ahead = make([]driver.Value, n), true
	if r.end = r.Rows.Next(r.row); r.end != nil && r.end != io.EOF {
		r.finish()
		return r.end
	}
	return nil
}

// finish closes what the driver has open.
func (r *rows) finish() error {
	err := r.Rows.Close()
	if r.stmt != nil {
		r.stmt.Close()
	}
	return err
}

// abandon closes rows that nobody gets.
func (r *rows) abandon() { r.finish() }

// Close ends the reading, and the call.
func (r *rows) Close() error {
	if r.over {
		return nil
	}
	r.over = true
	err := r.failed(r.finish())
	if r.end == nil {
		r.call.kill(r.ctx) // if nobody waits for the rest
	}
	r.call.end()
	return err
}

// Next reads a row; see driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	if r.ahead {
		r.ahead = false
		copy(dest, r.row)
		return r.end
	}
	if r.ctx.Err() != nil { // not every driver looks
		return r.failed(context.Cause(r.ctx))
	}
	err := r.Rows.Next(dest)
	if err == io.EOF {
		r.end = err
		return err
	}
	return r.failed(err)
}

// failed judges an error that came when the call had succeeded.
func (r *rows) failed(err error) error {
	if err == nil {
		return nil
	}
	_, err = r.call.judge(r.ctx, err)
	err = because(r.ctx, err)
	if errors.Is(err, driver.ErrBadConn) {
		err = &final{err}
	}
	return err
}

// The optional methods of driver.Rows answer as database/sql would without them.

// HasNextResultSet is part of driver.RowsNextResultSet.
func (r *rows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

// NextResultSet is part of driver.RowsNextResultSet.
func (r *rows) NextResultSet() error {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	r.ahead, r.end = false, nil
	err := n.NextResultSet()
	if err == io.EOF {
		r.end = err
		return err
	}
	return r.failed(err)
}

// ColumnTypeScanType is driver.RowsColumnTypeScanType.
func (r *rows) ColumnTypeScanType(index int) reflect.Type {
	if c, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return c.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

// ColumnTypeDatabaseTypeName is driver.RowsColumnTypeDatabaseTypeName.
func (r *rows) ColumnTypeDatabaseTypeName(index int) string {
	if c, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return c.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

// ColumnTypeLength is driver.RowsColumnTypeLength.
func (r *rows) ColumnTypeLength(index int) (length int64, ok bool) {
	if c, has := r.Rows.(driver.RowsColumnTypeLength); has {
		return c.ColumnTypeLength(index)
	}
	return 0, false
}

// ColumnTypeNullable is driver.RowsColumnTypeNullable.
func (r *rows) ColumnTypeNullable(index int) (nullable, ok bool) {
	if c, has := r.Rows.(driver.RowsColumnTypeNullable); has {
		return c.ColumnTypeNullable(index)
	}
	return false, false
}

// ColumnTypePrecisionScale is driver.RowsColumnTypePrecisionScale.
func (r *rows) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if c, has := r.Rows.(driver.RowsColumnTypePrecisionScale); has {
		return c.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}
