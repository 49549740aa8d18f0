// Package identity makes certificates and keys and checks service account tokens.
package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// PKI writes ca.crt/ca.key, server.crt/.key, admin.crt/.key, sa.key and admin.kubeconfig under dir.
type PKI struct {
	dir    string
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	saKey  *ecdsa.PrivateKey
	serial int64
}

func (p *PKI) Path(name string) string { return filepath.Join(p.dir, name) }

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func NewPKI(dir string) (*PKI, error) {
	p := &PKI{dir: dir, serial: time.Now().UnixNano()}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if p.key, err = loadOrMakeKey(p.Path("ca.key")); err != nil {
		return nil, err
	}
	if p.saKey, err = loadOrMakeKey(p.Path("sa.key")); err != nil {
		return nil, err
	}
	if b, err := os.ReadFile(p.Path("ca.crt")); err == nil { // a restart keeps every credential valid
		block, _ := pem.Decode(b)
		p.ca, err = x509.ParseCertificate(block.Bytes)
		return p, err
	}
	p.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "wattpack-test-ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, p.ca, p.ca, &p.key.PublicKey, p.key)
	if err != nil {
		return nil, err
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := writePEM(p.Path("ca.crt"), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	if err := p.issue("server", pkix.Name{CommonName: "wattpack-test"}, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	return p, p.issue("admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth)
}

func loadOrMakeKey(path string) (*ecdsa.PrivateKey, error) {
	if b, err := os.ReadFile(path); err == nil {
		block, _ := pem.Decode(b)
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		return key.(*ecdsa.PrivateKey), nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return key, writeKey(path, key)
}

func writeKey(path string, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der)
}

func (p *PKI) issue(name string, subject pkix.Name, usage x509.ExtKeyUsage) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	p.serial++
	t := &x509.Certificate{SerialNumber: big.NewInt(p.serial), Subject: subject, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(365 * 24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}}
	if usage == x509.ExtKeyUsageServerAuth {
		t.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, p.ca, &key.PublicKey, p.key)
	if err != nil {
		return err
	}
	if err := writePEM(p.Path(name+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(p.Path(name+".key"), key)
}

// WriteKubeconfig writes admin.kubeconfig for the given server address.
func (p *PKI) WriteKubeconfig(server string) error {
	read := func(n string) []byte { b, _ := os.ReadFile(p.Path(n)); return b }
	c := clientcmdapi.NewConfig()
	c.Clusters["wattpack-test"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: read("ca.crt")}
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: read("admin.crt"), ClientKeyData: read("admin.key")}
	c.Contexts["wattpack-test"] = &clientcmdapi.Context{Cluster: "wattpack-test", AuthInfo: "admin"}
	c.CurrentContext = "wattpack-test"
	part := p.Path("admin.kubeconfig.part")
	if err := clientcmd.WriteToFile(*c, part); err != nil {
		return err
	}
	return os.Rename(part, p.Path("admin.kubeconfig")) // whoever waits for the file finds all of it
}
