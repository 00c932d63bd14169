module github.com/stint-go/stint/integration

go 1.26.0

require (
	github.com/stint-go/stint v0.0.0
	github.com/stint-go/stint/policy v0.0.0
)

require (
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)
