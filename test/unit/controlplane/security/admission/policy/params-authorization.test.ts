/** Tests who may write admission policies and bindings with parameters: only users that may read the parameters. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Resource } from '../../../../../../api/client/client.ts';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../../../../api/schema/schema.ts';
import type { AdmissionAttributes } from '../../../../../../controlplane/security/admission/admission.ts';
import { paramsAuthorization } from '../../../../../../controlplane/security/admission/policy/params-authorization.ts';
import type { Authorizer } from '../../../../../../controlplane/security/authorization/authorization.ts';
import { fixedListers } from '../../../../../fakes/fixed-listers.ts';

const GROUP = 'admissionregistration.k8s.io';
const POLICIES: Resource = {
  group: GROUP,
  version: 'v1',
  resource: 'validatingadmissionpolicies',
  kind: 'ValidatingAdmissionPolicy',
  namespaced: false,
};
const paramKind = { apiVersion: 'shop.example.com/v1', kind: 'Limit' };
const served = [
  { group: 'shop.example.com', version: 'v1', resource: 'limits', kind: 'Limit' },
] as unknown as readonly ResourceInfo[];

const policy = (spec: object): KubeObject => ({ kind: POLICIES.kind, metadata: { name: 'p' }, spec }) as KubeObject;
const binding = (spec: object): KubeObject =>
  ({ kind: 'ValidatingAdmissionPolicyBinding', metadata: { name: 'b' }, spec }) as KubeObject;

interface Written {
  readonly resource?: string;
  readonly subresource?: string;
  readonly object: KubeObject;
  readonly oldObject?: KubeObject;
  readonly groups?: readonly string[];
}

/** Validates a write of a user, and returns what the authorizer was asked for. It allows `allowed`. */
async function validate(written: Written, allowed: readonly string[] = []): Promise<string[]> {
  const asked: string[] = [];
  const authorizer: Authorizer = {
    authorize({ verb, group, resource, namespace, name }) {
      const right = `${verb} ${resource}.${group} ${namespace}/${name}`;
      asked.push(right);
      return { decision: allowed.includes(right) ? 'allow' : 'no-opinion', reason: '' };
    },
  };
  const listers = fixedListers([{ resource: POLICIES, object: policy({ paramKind }) }]);
  const plugin = paramsAuthorization({ listers, authorizer, resources: () => served });
  const { resource = POLICIES.resource, subresource = '', object, oldObject, groups = [] } = written;
  const attributes = {
    operation: oldObject === undefined ? 'CREATE' : 'UPDATE',
    resource: { group: GROUP, version: 'v1', resource },
    subresource,
    namespace: '',
    name: object.metadata.name ?? '',
    object,
    oldObject,
    user: { name: 'ann', groups },
  } as unknown as AdmissionAttributes;
  await plugin.validate?.(attributes, new AbortController().signal);
  return asked;
}

const ALL_LIMITS = 'get limits.shop.example.com */*';
const bindings = 'validatingadmissionpolicybindings';

describe('a policy with parameters', () => {
  it('is refused unless its user may get all objects of the kind', async () => {
    const object = policy({ paramKind });
    await assert.rejects(validate({ object }), {
      code: 422,
      message:
        /spec\.paramKind: Forbidden: user ann must have "get" permission on all objects of the referenced paramKind/,
    });
    assert.deepEqual(await validate({ object }, [ALL_LIMITS]), [ALL_LIMITS]);
  });

  it('may be changed by other users while its kind of parameters stays', async () => {
    const oldObject = policy({ paramKind });
    assert.deepEqual(await validate({ object: policy({ paramKind, failurePolicy: 'Ignore' }), oldObject }), []);
    assert.deepEqual(await validate({ object: policy({}), oldObject }), []);
    const other = policy({ paramKind: { ...paramKind, kind: 'Quota' } });
    await assert.rejects(validate({ object: other, oldObject }), { code: 422 });
  });

  it('of a kind that is not served requires the permission for every resource of the group', async () => {
    const object = policy({ paramKind: { ...paramKind, kind: 'Unknown' } });
    assert.deepEqual(await validate({ object }, ['get *.shop.example.com */*']), ['get *.shop.example.com */*']);
  });

  it('is not checked for administrators, and not in its status', async () => {
    const object = policy({ paramKind });
    assert.deepEqual(await validate({ object, groups: ['system:masters'] }), []);
    assert.deepEqual(await validate({ object, subresource: 'status' }), []);
    assert.deepEqual(await validate({ object: policy({}) }), []);
  });
});

describe('a binding with parameters', () => {
  const named = { policyName: 'p', paramRef: { name: 'small', namespace: 'shop' } };
  const GET = 'get limits.shop.example.com shop/small';

  it('is refused unless its user may get the object that it names', async () => {
    await assert.rejects(validate({ resource: bindings, object: binding(named) }), {
      code: 422,
      message:
        /spec\.paramRef: Forbidden: user ann does not have "get" permission on the object referenced by paramRef/,
    });
    assert.deepEqual(await validate({ resource: bindings, object: binding(named) }, [GET]), [GET]);
  });

  it('is refused unless its user may list the objects that it selects', async () => {
    const object = binding({ policyName: 'p', paramRef: { selector: {} } });
    await assert.rejects(validate({ resource: bindings, object }, [GET]), /does not have "list" permission/);
    const list = 'list limits.shop.example.com /';
    assert.deepEqual(await validate({ resource: bindings, object }, [list]), [list]);
  });

  it('may be changed by other users while its parameters and its policy stay', async () => {
    const oldObject = binding(named);
    const object = binding({ ...named, validationActions: ['Audit'] });
    assert.deepEqual(await validate({ resource: bindings, object, oldObject }), []);
    const moved = binding({ ...named, policyName: 'q' });
    await assert.rejects(validate({ resource: bindings, object: moved, oldObject }), { code: 422 });
  });

  it('of a policy that does not exist requires the permission for every resource', async () => {
    const object = binding({ ...named, policyName: 'missing' });
    assert.deepEqual(await validate({ resource: bindings, object }, ['get *.* shop/small']), ['get *.* shop/small']);
  });
});
