package stint_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// At twice the capacity, with half of it sheddable, critical requests are as many
// as the server can do: hardly any is lost, and the rest is what is left over.
func TestSheddableIsShedFirst(t *testing.T) {
	const (
		slots, mean = 20, 10 * time.Millisecond
		capacity    = float64(slots) / .01
		warm, over  = 10 * time.Second, 20 * time.Second
	)
	// Of work that is as irregular as an exponential law, some takes more than the
	// critical request has, and a learned limit is off now and then.
	for law, least := range map[string]int{"constant": 99, "lognormal": 99, "exponential": 97} {
		work := map[string]func(*rand.Rand) time.Duration{
			"constant": constant(mean), "lognormal": lognormal(mean), "exponential": exponential(mean)}[law]
		for name, o := range map[string]stint.GateOptions{"learned": {}, "fixed": {Limit: slots}} {
			t.Run(fmt.Sprint(law, " ", name), func(t *testing.T) {
				w := newWorld(t, o, slots, work)
				w.load(capacity/2, warm, due(200*time.Millisecond))
				w.run(warm)
				// Evenly, as load generators do it: critical requests that come at random would
				// already be more than the server can do, as often as not.
				for i := range int(2 * capacity * over.Seconds()) {
					v := due(200 * time.Millisecond)()
					if v.hop.Class = stint.Critical; i%2 == 0 {
						v.hop.Class = stint.Sheddable
					}
					w.at(time.Duration(i)*time.Second/time.Duration(2*capacity), func() { w.arrive(&v) })
				}
				w.run(over + time.Second)

				came, good := map[stint.Class]int{}, map[stint.Class]int{}
				for _, v := range w.visitors {
					if c := v.hop.Class; c != stint.ClassUnset {
						if came[c]++; v.good() {
							good[c]++
						}
					}
				}
				t.Logf("critical: %d of %d, sheddable: %d of %d; limit %d", good[stint.Critical], came[stint.Critical],
					good[stint.Sheddable], came[stint.Sheddable], w.ctrl.Limit())
				if good[stint.Critical]*100 < came[stint.Critical]*least {
					t.Errorf("of %d critical requests %d succeeded, want %d %%", came[stint.Critical], good[stint.Critical], least)
				}
			})
		}
	}
}
