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
	f          func(ctx context.Context, obj runtime.Object) error
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
	return obj, c.f(ctx, obj)
}

func extraV1[T ~[]string](in map[string][]string) map[string]T {
	out := map[string]T{}
	for k, v := range in {
		out[k] = v
	}
	return out
}

func userV1(u user.Info) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extraV1[authenticationv1.ExtraValue](u.GetExtra())}
}

func attributes(u user.Info, ra *authorizationv1.ResourceAttributes, na *authorizationv1.NonResourceAttributes) authorizer.Attributes {
	if ra != nil {
		return authorizer.AttributesRecord{User: u, Verb: ra.Verb, Namespace: ra.Namespace, APIGroup: ra.Group, APIVersion: ra.Version,
			Resource: ra.Resource, Subresource: ra.Subresource, Name: ra.Name, ResourceRequest: true}
	}
	if na != nil {
		return authorizer.AttributesRecord{User: u, Verb: na.Verb, Path: na.Path}
	}
	return authorizer.AttributesRecord{User: u}
}

func reviews(tokens authenticator.Token, authz authorizer.Authorizer, rules authorizer.RuleResolver) (authnREST, authzREST map[string]rest.Storage) {
	decide := func(ctx context.Context, a authorizer.Attributes, s *authorizationv1.SubjectAccessReviewStatus) error {
		d, reason, err := authz.Authorize(ctx, a)
		*s = authorizationv1.SubjectAccessReviewStatus{Allowed: d == authorizer.DecisionAllow, Denied: d == authorizer.DecisionDeny, Reason: reason}
		if err != nil {
			s.EvaluationError = err.Error()
		}
		return nil
	}
	self := func(ctx context.Context) user.Info { u, _ := request.UserFrom(ctx); return u }
	specUser := func(s authorizationv1.SubjectAccessReviewSpec) user.Info {
		return &user.DefaultInfo{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: extraOf(s.Extra)}
	}
	authnREST = map[string]rest.Storage{
		"tokenreviews": &createOnly{&authenticationv1.TokenReview{}, "tokenreview", false, func(ctx context.Context, o runtime.Object) error {
			t := o.(*authenticationv1.TokenReview)
			if len(t.Spec.Audiences) > 0 {
				ctx = authenticator.WithAudiences(ctx, t.Spec.Audiences)
			}
			resp, ok, err := tokens.AuthenticateToken(ctx, t.Spec.Token)
			t.Status = authenticationv1.TokenReviewStatus{Authenticated: ok}
			if err != nil {
				t.Status.Error = err.Error()
			}
			if ok {
				t.Status.User, t.Status.Audiences = userV1(resp.User), resp.Audiences
			}
			return nil
		}},
		"selfsubjectreviews": &createOnly{&authenticationv1.SelfSubjectReview{}, "selfsubjectreview", false, func(ctx context.Context, o runtime.Object) error {
			o.(*authenticationv1.SelfSubjectReview).Status.UserInfo = userV1(self(ctx))
			return nil
		}},
	}
	authzREST = map[string]rest.Storage{
		"subjectaccessreviews": &createOnly{&authorizationv1.SubjectAccessReview{}, "subjectaccessreview", false, func(ctx context.Context, o runtime.Object) error {
			r := o.(*authorizationv1.SubjectAccessReview)
			return decide(ctx, attributes(specUser(r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), &r.Status)
		}},
		"localsubjectaccessreviews": &createOnly{&authorizationv1.LocalSubjectAccessReview{}, "localsubjectaccessreview", true, func(ctx context.Context, o runtime.Object) error {
			r := o.(*authorizationv1.LocalSubjectAccessReview)
			return decide(ctx, attributes(specUser(r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), &r.Status)
		}},
		"selfsubjectaccessreviews": &createOnly{&authorizationv1.SelfSubjectAccessReview{}, "selfsubjectaccessreview", false, func(ctx context.Context, o runtime.Object) error {
			r := o.(*authorizationv1.SelfSubjectAccessReview)
			return decide(ctx, attributes(self(ctx), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), &r.Status)
		}},
		"selfsubjectrulesreviews": &createOnly{&authorizationv1.SelfSubjectRulesReview{}, "selfsubjectrulesreview", false, func(ctx context.Context, o runtime.Object) error {
			r := o.(*authorizationv1.SelfSubjectRulesReview)
			res, non, incomplete, err := rules.RulesFor(ctx, self(ctx), r.Spec.Namespace)
			r.Status.Incomplete = incomplete
			r.Status.ResourceRules, r.Status.NonResourceRules = []authorizationv1.ResourceRule{}, []authorizationv1.NonResourceRule{}
			for _, x := range res {
				r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{Verbs: x.GetVerbs(), APIGroups: x.GetAPIGroups(), Resources: x.GetResources(), ResourceNames: x.GetResourceNames()})
			}
			for _, x := range non {
				r.Status.NonResourceRules = append(r.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: x.GetVerbs(), NonResourceURLs: x.GetNonResourceURLs()})
			}
			return err
		}},
	}
	return authnREST, authzREST
}

func extraOf(in map[string]authorizationv1.ExtraValue) map[string][]string {
	out := map[string][]string{}
	for k, v := range in {
		out[k] = v
	}
	return out
}
