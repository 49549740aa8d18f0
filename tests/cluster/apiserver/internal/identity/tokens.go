package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
)

// Issuer is the issuer and the default audience of every service account token.
const Issuer = "https://kubernetes.default.svc"

// Ref names an object that a token is bound to.
type Ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// Bound holds what a token is bound to; a pod's token also carries the node of the pod.
type Bound struct {
	Pod    *Ref `json:"pod,omitempty"`
	Node   *Ref `json:"node,omitempty"`
	Secret *Ref `json:"secret,omitempty"`
}

type privateClaims struct {
	Kubernetes struct {
		Namespace string `json:"namespace,omitempty"`
		Account   Ref    `json:"serviceaccount"`
		Bound
	} `json:"kubernetes.io"`
}

// Tokens signs and checks service account tokens.
type Tokens struct {
	PKI    *PKI
	Client kubernetes.Interface
}

// Sign makes a token of the account for the audiences, and says when it expires.
func (t *Tokens) Sign(account *corev1.ServiceAccount, audiences []string, ttl time.Duration, bound Bound) (string, time.Time, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: t.PKI.saKey}, nil)
	if err != nil {
		return "", time.Time{}, err
	}
	now := time.Now()
	expiry := now.Add(ttl)
	std := jwt.Claims{
		Issuer: Issuer, Subject: serviceaccount.MakeUsername(account.Namespace, account.Name), Audience: audiences, ID: string(uuid.NewUUID()),
		Expiry: jwt.NewNumericDate(expiry), IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now),
	}
	var private privateClaims
	private.Kubernetes.Namespace = account.Namespace
	private.Kubernetes.Account = Ref{account.Name, string(account.UID)}
	private.Kubernetes.Bound = bound
	raw, err := jwt.Signed(signer).Claims(std).Claims(private).CompactSerialize()
	return raw, expiry, err
}

// AuthenticateToken implements authenticator.Token. It looks up the account and the bound object, so that deleting
// either revokes the token.
func (t *Tokens) AuthenticateToken(ctx context.Context, raw string) (*authenticator.Response, bool, error) {
	token, err := jwt.ParseSigned(raw)
	if err != nil {
		return nil, false, nil //nolint:nilerr // not a JWT: another authenticator may know it
	}
	var std jwt.Claims
	var private privateClaims
	if err := token.Claims(&t.PKI.saKey.PublicKey, &std, &private); err != nil {
		return nil, false, err
	}
	if err := std.ValidateWithLeeway(jwt.Expected{Issuer: Issuer, Time: time.Now()}, 0); err != nil {
		return nil, false, err
	}
	want, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		want = authenticator.Audiences{Issuer}
	}
	audiences := want.Intersect(authenticator.Audiences(std.Audience))
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", std.Audience, want)
	}
	info := serviceaccount.ServiceAccountInfo{
		Namespace: private.Kubernetes.Namespace, Name: private.Kubernetes.Account.Name, UID: private.Kubernetes.Account.UID,
		CredentialID: "JTI=" + std.ID,
	}
	if err := t.alive(ctx, &private, &info); err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: info.UserInfo(), Audiences: audiences}, true, nil
}

// alive checks that the account and what the token is bound to still exist, and fills in the extra information.
func (t *Tokens) alive(ctx context.Context, private *privateClaims, info *serviceaccount.ServiceAccountInfo) error {
	k, core := private.Kubernetes, t.Client.CoreV1()
	account, err := core.ServiceAccounts(k.Namespace).Get(ctx, k.Account.Name, metav1.GetOptions{})
	if err != nil || string(account.UID) != k.Account.UID {
		return errors.New("service account token has been invalidated: the account is gone or was replaced")
	}
	if k.Pod != nil {
		pod, err := core.Pods(k.Namespace).Get(ctx, k.Pod.Name, metav1.GetOptions{})
		if err != nil || string(pod.UID) != k.Pod.UID {
			return errors.New("service account token has been invalidated: its pod is gone or was replaced")
		}
		info.PodName, info.PodUID = k.Pod.Name, k.Pod.UID
	}
	if k.Node != nil {
		if k.Pod == nil { // a pod's token survives its node's object, as in Kubernetes
			node, err := core.Nodes().Get(ctx, k.Node.Name, metav1.GetOptions{})
			if err != nil || string(node.UID) != k.Node.UID {
				return errors.New("service account token has been invalidated: its node is gone or was replaced")
			}
		}
		info.NodeName, info.NodeUID = k.Node.Name, k.Node.UID
	}
	if k.Secret != nil {
		secret, err := core.Secrets(k.Namespace).Get(ctx, k.Secret.Name, metav1.GetOptions{})
		if err != nil || string(secret.UID) != k.Secret.UID {
			return errors.New("service account token has been invalidated: its secret is gone or was replaced")
		}
	}
	return nil
}
