// client.js makes one unary call with Node's own gRPC client and prints what became of it as JSON. Its argument is JSON:
// address, deadlineMs (absent: none), attempts (absent: no retry policy), metadata (absent: none).
'use strict';
const grpc = require('@grpc/grpc-js');

const want = JSON.parse(process.argv[2]);
const options = {};
if (want.attempts) {
  options['grpc.service_config'] = JSON.stringify({
    methodConfig: [{
      name: [{}],
      retryPolicy: {
        maxAttempts: want.attempts,
        initialBackoff: '0.001s',
        maxBackoff: '0.001s',
        backoffMultiplier: 1,
        retryableStatusCodes: ['UNAVAILABLE'],
      },
    }],
  });
}
const client = new grpc.Client(want.address, grpc.credentials.createInsecure(), options);
const metadata = new grpc.Metadata();
for (const [name, value] of Object.entries(want.metadata || {})) metadata.set(name, value);
const callOptions = want.deadlineMs ? { deadline: Date.now() + want.deadlineMs } : {};
const asIs = (bytes) => bytes;

client.makeUnaryRequest('/grpc.testing.TestService/UnaryCall', asIs, asIs, Buffer.alloc(0), metadata, callOptions, (err) => {
  const trailers = {};
  for (const name of Object.keys(err ? err.metadata.getMap() : {})) trailers[name] = err.metadata.get(name).map(String);
  console.log(JSON.stringify({ code: err ? err.code : 0, details: err ? err.details : '', trailers }));
  client.close();
});
