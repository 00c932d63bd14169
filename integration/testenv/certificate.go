package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"time"
)

// pair is a certificate for 127.0.0.1 that signs itself, and its key, as PEM.
type pair struct {
	cert, key []byte
	pool      *x509.CertPool
}

// certificate makes the pair once for the process. It fails only if the machine has no random numbers.
var certificate = sync.OnceValue(func() pair {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	cert, err := x509.ParseCertificate(der)
	must(err)
	p := pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		pool: x509.NewCertPool(),
	}
	p.pool.AddCert(cert)
	return p
})

// ClientTLS returns what a client needs to believe every Nginx.
func ClientTLS() *tls.Config { return &tls.Config{RootCAs: certificate().pool} }
