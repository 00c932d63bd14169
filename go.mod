module github.com/stint-go/stint

go 1.26.0

require github.com/sony/gobreaker/v2 v2.4.0
