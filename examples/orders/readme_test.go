package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// README.md shows what the service answers.
func TestReadme(t *testing.T) {
	if *database != "" || *redisURL != "" {
		t.Skip("README.md shows orders that are new, and a database and a cache that are the process's own")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	a := start(t, patient(t, "0"))
	sent := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, command := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			curl, want, _ := strings.Cut(command, "\n")
			method, url, body, header := parseCurl(t, curl)
			url = strings.NewReplacer("localhost:8080", a.url, "localhost:8081", a.demo).Replace(url)
			var got string
			until(t, curl, func() bool {
				_, got = a.send(method, url, body, header...)
				return !strings.HasPrefix(got, "Service Unavailable") // what fills the cache may still be at it
			})
			sent++
			if undated(got) != undated(want) {
				t.Errorf("%s\n has %swant %s", curl, got, want)
			}
		}
	}
	if sent < 5 {
		t.Errorf("README.md has %d commands", sent)
	}
}

// parseCurl reads the few of curl's options that README.md uses.
func parseCurl(t *testing.T, line string) (method, url, body string, header []string) {
	t.Helper()
	var words []string
	for _, w := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(w, "'"))
	}
	if words[0] != "curl" {
		t.Fatalf("not curl: %s", line)
	}
	for i := 1; i < len(words); i++ {
		if !strings.HasPrefix(words[i], "-") {
			url = words[i]
			continue
		}
		if i++; i == len(words) {
			t.Fatalf("an option without its value: %s", line)
		}
		switch words[i-1] {
		case "-X":
			method = words[i]
		case "-d":
			body = words[i]
		case "-H":
			name, value, _ := strings.Cut(words[i], ": ")
			header = append(header, name, value)
		default:
			t.Fatalf("an option that the test does not know: %s", line)
		}
	}
	if method == "" {
		method = "POST"
	}
	return method, url, body, header
}

// undated has every order made at one time, and ends alike.
func undated(answer string) string {
	answer = regexp.MustCompile(`"created":"[^"]*"`).ReplaceAllString(answer, `"created":""`)
	return strings.TrimSpace(answer)
}
