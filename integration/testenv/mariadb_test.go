package testenv

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// greeting reads what a MariaDB says first, which has its version.
func greeting(t *testing.T, network, addr string) string {
	t.Helper()
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	b := make([]byte, 256)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// TestMariaDB: it listens on its socket and through a Proxy, the shared one is one,
// and another is killed.
func TestMariaDB(t *testing.T) {
	start := time.Now()
	m := SharedMariaDB(t)
	t.Logf("started in %v", time.Since(start).Round(time.Millisecond))
	if SharedMariaDB(t) != m {
		t.Error("a second shared one")
	}
	for network, addr := range map[string]string{"unix": m.socket(), "tcp4": m.Proxy(t).Addr} {
		if s := greeting(t, network, addr); !strings.Contains(s, "MariaDB") {
			t.Errorf("over %s it says %q", network, s)
		}
	}

	var dir string
	t.Run("own", func(t *testing.T) {
		own := StartMariaDB(t)
		dir = own.process.dir
		greeting(t, "unix", own.socket())
		own.Kill()
		if c, err := net.Dial("unix", own.socket()); err == nil {
			c.Close()
			t.Error("a killed one lets somebody in")
		}
	})
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	greeting(t, "unix", m.socket())
}
