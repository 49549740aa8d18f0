package registry

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// createOnly is a resource that is computed, never stored.
type createOnly struct {
	obj        runtime.Object
	singular   string
	namespaced bool
	answer     func(ctx context.Context, obj runtime.Object) error
}

func (c *createOnly) New() runtime.Object     { return zero(c.obj) }
func (c *createOnly) Destroy()                {}
func (c *createOnly) NamespaceScoped() bool   { return c.namespaced }
func (c *createOnly) GetSingularName() string { return c.singular }
func (c *createOnly) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return obj, c.answer(ctx, obj)
}

// computed adapts a typed answer to any runtime.Object.
func computed[T runtime.Object](obj T, singular string, namespaced bool, answer func(context.Context, T) error) rest.Storage {
	return &createOnly{obj, singular, namespaced, func(ctx context.Context, o runtime.Object) error { return answer(ctx, o.(T)) }}
}

// reviewer answers who somebody is and what they may do.
type reviewer struct {
	tokens authenticator.Token
	authz  authorizer.Authorizer
	rules  authorizer.RuleResolver
}

func reviews(tokens authenticator.Token, authz authorizer.Authorizer, rules authorizer.RuleResolver) (authn, access map[string]rest.Storage) {
	r := &reviewer{tokens, authz, rules}
	authn = map[string]rest.Storage{
		"tokenreviews":       computed(&authenticationv1.TokenReview{}, "tokenreview", false, r.token),
		"selfsubjectreviews": computed(&authenticationv1.SelfSubjectReview{}, "selfsubjectreview", false, r.self),
	}
	access = map[string]rest.Storage{
		"subjectaccessreviews":      computed(&authorizationv1.SubjectAccessReview{}, "subjectaccessreview", false, r.subject),
		"localsubjectaccessreviews": computed(&authorizationv1.LocalSubjectAccessReview{}, "localsubjectaccessreview", true, r.localSubject),
		"selfsubjectaccessreviews":  computed(&authorizationv1.SelfSubjectAccessReview{}, "selfsubjectaccessreview", false, r.selfAccess),
		"selfsubjectrulesreviews":   computed(&authorizationv1.SelfSubjectRulesReview{}, "selfsubjectrulesreview", false, r.selfRules),
	}
	return authn, access
}

func (r *reviewer) token(ctx context.Context, t *authenticationv1.TokenReview) error {
	if len(t.Spec.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, t.Spec.Audiences)
	}
	response, ok, err := r.tokens.AuthenticateToken(ctx, t.Spec.Token)
	t.Status = authenticationv1.TokenReviewStatus{Authenticated: ok}
	if err != nil {
		t.Status.Error = err.Error()
	}
	if ok {
		t.Status.User, t.Status.Audiences = userInfo(response.User), response.Audiences
	}
	return nil
}

func (r *reviewer) self(ctx context.Context, s *authenticationv1.SelfSubjectReview) error {
	s.Status.UserInfo = userInfo(requester(ctx))
	return nil
}

func (r *reviewer) subject(ctx context.Context, s *authorizationv1.SubjectAccessReview) error {
	r.decide(ctx, attributes(specUser(s.Spec), s.Spec.ResourceAttributes, s.Spec.NonResourceAttributes), &s.Status)
	return nil
}

func (r *reviewer) localSubject(ctx context.Context, s *authorizationv1.LocalSubjectAccessReview) error {
	r.decide(ctx, attributes(specUser(s.Spec), s.Spec.ResourceAttributes, s.Spec.NonResourceAttributes), &s.Status)
	return nil
}

func (r *reviewer) selfAccess(ctx context.Context, s *authorizationv1.SelfSubjectAccessReview) error {
	r.decide(ctx, attributes(requester(ctx), s.Spec.ResourceAttributes, s.Spec.NonResourceAttributes), &s.Status)
	return nil
}

func (r *reviewer) selfRules(ctx context.Context, s *authorizationv1.SelfSubjectRulesReview) error {
	resources, urls, incomplete, err := r.rules.RulesFor(ctx, requester(ctx), s.Spec.Namespace)
	s.Status.Incomplete = incomplete
	s.Status.ResourceRules, s.Status.NonResourceRules = []authorizationv1.ResourceRule{}, []authorizationv1.NonResourceRule{}
	for _, x := range resources {
		s.Status.ResourceRules = append(s.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: x.GetVerbs(), APIGroups: x.GetAPIGroups(), Resources: x.GetResources(), ResourceNames: x.GetResourceNames(),
		})
	}
	for _, x := range urls {
		s.Status.NonResourceRules = append(s.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: x.GetVerbs(), NonResourceURLs: x.GetNonResourceURLs(),
		})
	}
	return err
}

func (r *reviewer) decide(ctx context.Context, a authorizer.Attributes, s *authorizationv1.SubjectAccessReviewStatus) {
	decision, reason, err := r.authz.Authorize(ctx, a)
	*s = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err != nil {
		s.EvaluationError = err.Error()
	}
}

// requester is nobody when the context names none, which no authorizer allows anything.
func requester(ctx context.Context) user.Info {
	if u, ok := request.UserFrom(ctx); ok {
		return u
	}
	return &user.DefaultInfo{}
}

func specUser(s authorizationv1.SubjectAccessReviewSpec) user.Info {
	extra := map[string][]string{}
	for k, v := range s.Extra {
		extra[k] = v
	}
	return &user.DefaultInfo{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: extra}
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	extra := map[string]authenticationv1.ExtraValue{}
	for k, v := range u.GetExtra() {
		extra[k] = v
	}
	return authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

func attributes(u user.Info, resource *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) authorizer.Attributes {
	if resource != nil {
		return authorizer.AttributesRecord{
			User: u, Verb: resource.Verb, Namespace: resource.Namespace, APIGroup: resource.Group, APIVersion: resource.Version,
			Resource: resource.Resource, Subresource: resource.Subresource, Name: resource.Name, ResourceRequest: true,
		}
	}
	if url != nil {
		return authorizer.AttributesRecord{User: u, Verb: url.Verb, Path: url.Path}
	}
	return authorizer.AttributesRecord{User: u}
}
