module github.com/stint-go/stint/cmd/stint

go 1.26.0

require (
	github.com/stint-go/stint v0.0.0
	github.com/stint-go/stint/policy v0.0.0
	github.com/stint-go/stint/policy/emit v0.0.0
	github.com/stint-go/stint/stintgrpc v0.0.0
	github.com/stint-go/stint/stintredis v0.0.0
	golang.org/x/term v0.48.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	rsc.io/script v0.0.2
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)
