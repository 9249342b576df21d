/**
 * Requires that a client that writes an admission policy or a binding with parameters may read them, because messages and audit
 * annotations of the policy show them. It is always on, as in kube-apiserver, where the strategies of policies and bindings
 * check it.
 */
import { groupVersion } from '../../../../api/client/resources.ts';
import { forbidden } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { type KubeObject, parseApiVersion } from '../../../../api/meta/object.ts';
import { newInvalid } from '../../../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../../../api/schema/schema.ts';
import type { UserInfo } from '../../../model/user-info.ts';
import type { Authorizer } from '../../authorization/authorization.ts';
import type { Listers } from '../../../model/listers.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../admission.ts';
import { nameOf } from '../pod-attributes.ts';
import type { Policy, PolicyBinding } from './policy-types.ts';
import { MASTERS_GROUP } from '../../../../api/meta/system-users.ts';

interface ParamsAuthorizationOptions {
  readonly listers: Listers;
  readonly authorizer: Authorizer;
  /** Returns the served resources, to find the resource of a kind of parameters. */
  readonly resources: () => readonly ResourceInfo[];
}

const GROUP = 'admissionregistration.k8s.io';

/** The resource and kind of the policies, by the resource of their bindings. */
const POLICIES = {
  validatingadmissionpolicybindings: ['validatingadmissionpolicies', 'ValidatingAdmissionPolicy'],
  mutatingadmissionpolicybindings: ['mutatingadmissionpolicies', 'MutatingAdmissionPolicy'],
} as const;

const KINDS: ReadonlySet<string> = new Set(Object.values(POLICIES).map(([resource]) => resource));

type ParamKind = NonNullable<Policy['spec']>['paramKind'];

/** Refuses a policy or a binding whose parameters the client may not read. Members of `system:masters` always pass. */
export function paramsAuthorization(options: ParamsAuthorizationOptions): AdmissionPlugin {
  const { authorizer, listers } = options;
  const mayRead = async (
    user: UserInfo,
    verb: 'get' | 'list',
    kind: ParamKind,
    { namespace, name }: { readonly namespace: string; readonly name: string },
  ): Promise<boolean> => {
    const { decision } = await authorizer.authorize({
      user,
      verb,
      isResourceRequest: true,
      ...resourceOfKind(options.resources(), kind),
      subresource: '',
      namespace,
      name,
      path: '',
    });
    return decision === 'allow';
  };
  const policyNamed = async (resource: keyof typeof POLICIES, name: string): Promise<Policy | undefined> => {
    const [policies, kind] = POLICIES[resource];
    const lister = listers.of<Policy>(groupVersion(GROUP, 'v1').clusterScoped(policies, kind));
    return lister.get('', name) ?? (await lister.live('', name));
  };
  const checkPolicy = async (attributes: AdmissionAttributes, policy: Policy, old: Policy | undefined) => {
    const kind = policy.spec?.paramKind;
    if (kind === undefined || jsonEqual(kind, old?.spec?.paramKind)) return;
    if (await mayRead(attributes.user, 'get', kind, { namespace: '*', name: '*' })) return;
    const which = `(kind=${kind.kind ?? ''}, apiVersion=${kind.apiVersion ?? ''})`;
    const text = `must have "get" permission on all objects of the referenced paramKind ${which}`;
    throw notPermitted(attributes, policy, 'spec.paramKind', text);
  };
  const checkBinding = async (
    attributes: AdmissionAttributes,
    resource: keyof typeof POLICIES,
    binding: PolicyBinding,
    old: PolicyBinding | undefined,
  ) => {
    const { paramRef: ref, policyName = '' } = binding.spec ?? {};
    if (ref === undefined) return;
    if (jsonEqual(ref, old?.spec?.paramRef) && policyName === old?.spec?.policyName) return;
    const kind = (await policyNamed(resource, policyName))?.spec?.paramKind;
    const { name = '', namespace = '' } = ref;
    const verb = ref.selector === undefined ? 'get' : 'list';
    if (await mayRead(attributes.user, verb, kind, { namespace, name })) return;
    const text = `does not have "${verb}" permission on the object referenced by paramRef`;
    throw notPermitted(attributes, binding, 'spec.paramRef', text);
  };
  return {
    name: 'PolicyParamsAuthorization',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async validate(attributes) {
      const { object, oldObject, resource, subresource, user } = attributes;
      if (resource.group !== GROUP || subresource !== '' || object === undefined) return;
      if (user.groups.includes(MASTERS_GROUP)) return;
      if (KINDS.has(resource.resource)) await checkPolicy(attributes, object, oldObject);
      if (isBindings(resource.resource)) await checkBinding(attributes, resource.resource, object, oldObject);
    },
  };
}

const isBindings = (resource: string): resource is keyof typeof POLICIES => Object.hasOwn(POLICIES, resource);

/** Returns the resource of a kind of parameters. `*` stands for each part that cannot be found. */
function resourceOfKind(
  served: readonly ResourceInfo[],
  kind: ParamKind,
): { readonly group: string; readonly version: string; readonly resource: string } {
  const gv = parseApiVersion(kind?.apiVersion ?? '');
  if (kind === undefined || gv === undefined) return { group: '*', version: '*', resource: '*' };
  const info = served.find((one) => one.group === gv.group && one.version === gv.version && one.kind === kind.kind);
  return { ...gv, resource: info?.resource ?? '*' };
}

function notPermitted(attributes: AdmissionAttributes, object: KubeObject, field: string, text: string): Error {
  const who = `user ${attributes.user.name}`;
  const kind = { group: GROUP, resource: object.kind ?? attributes.resource.resource };
  return newInvalid(kind, nameOf(attributes), [forbidden(field, `${who} ${text}`)]);
}
