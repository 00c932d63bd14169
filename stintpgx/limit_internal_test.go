package stintpgx

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// B03: what is less than a unit never becomes "without limit".
func TestLimit(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name               string
		left, margin, most time.Duration
		want               string // "": refused
		foreign            bool
	}{
		{"the margin is kept back", 100 * ms, 5 * ms, 0, "95", false},
		{"of little, half is kept", 8 * ms, 5 * ms, 0, "4", false},
		{"down to whole milliseconds", 100*ms + 900*time.Microsecond, 5 * ms, 0, "95", false},
		{"never zero, which would be without limit", ms, 5 * ms, 0, "1", false},
		{"less than a millisecond", 999 * time.Microsecond, 5 * ms, 0, "", false},
		{"nothing", 0, 5 * ms, 0, "", false},
		{"too late", -time.Second, 5 * ms, 0, "", false},
		{"more than the setting can hold", 60 * 24 * time.Hour, 5 * ms, 0, "2147483647", false},
		{"a margin longer than the time", 100 * ms, time.Second, 0, "50", false},
		{"the session's own is longer", 100 * ms, 5 * ms, time.Second, "95", false},
		{"the session's own is shorter", time.Minute, 5 * ms, time.Second, "1000", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limit{ends: time.Now().Add(c.left), margin: c.margin, most: c.most}
				v, err := l.Value()
				if c.want == "" {
					if !l.refused || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v, error %v: want a deadline", v, err)
					}
					return
				}
				if err != nil || v != c.want || l.foreign != c.foreign {
					t.Errorf("%v, foreign %v, error %v: want %s, %v", v, l.foreign, err, c.want, c.foreign)
				}
				if l.fired() {
					t.Error("fired at once")
				}
				time.Sleep(l.length)
				if l.fired() == c.foreign {
					t.Errorf("after its time: fired is %v, foreign %v", l.fired(), c.foreign)
				}
			})
		})
	}
}

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := &limit{ends: begun.Add(time.Second), margin: 5 * time.Millisecond}
		time.Sleep(200 * time.Millisecond)
		for since, want := range map[time.Time]string{begun: "995", {}: "795"} {
			if v, err := (rest{l, since}).Value(); err != nil || v != want {
				t.Errorf("since %v: %v, error %v: want %s", since, v, err, want)
			}
		}
	})
}

func TestKeyword(t *testing.T) {
	for sql, want := range map[string]string{
		"select 1":                          "select",
		"SELECT 1":                          "select",
		"\n\t (Select 1) union (select 2)":  "select",
		"-- a comment\n/* and */ update t":  "update",
		"insert into t values (1)":          "insert",
		"with x as (select 1) delete":       "with",
		"":                                  "batch",
		"'; drop table users; --":           "other",
		"selectivity_is_not_a_statement()":  "other",
		"-- nothing but a comment":          "other",
		"/* one that does not end select 1": "other",
		"42":                                "other",
		"ſelect 1":                          "other",
		"begin":                             "begin",
	} {
		if have := keyword(sql); have != want {
			t.Errorf("%q: %q, want %q", sql, have, want)
		}
	}
}
