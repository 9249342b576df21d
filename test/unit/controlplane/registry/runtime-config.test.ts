import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { builtinResources } from '../../../../api/schema/resources.ts';
import { checkRuntimeConfig, servedResources } from '../../../../controlplane/registry/runtime-config.ts';

function served(pairs: Readonly<Record<string, string>>): Set<string> {
  const serves = servedResources(pairs);
  return new Set(
    builtinResources()
      .filter(serves)
      .map(({ group, version, resource }) => `${group}/${version}/${resource}`),
  );
}

describe('--runtime-config', () => {
  it('leaves alpha and beta versions off by default', () => {
    const found = served({});
    assert.ok(found.has('/v1/pods') && found.has('apps/v1/deployments'));
    assert.deepEqual(
      [...found].filter((key) => /\/v\d+(alpha|beta)\d/.test(key)),
      [],
    );
  });

  it('turns single versions on', () => {
    const found = served({ 'resource.k8s.io/v1beta2': 'true' });
    assert.ok(found.has('resource.k8s.io/v1beta2/resourceclaims'));
    assert.ok(!found.has('resource.k8s.io/v1beta1/resourceclaims'));
  });

  it('turns all versions of a stage on and off', () => {
    assert.ok(served({ 'api/beta': '' }).has('coordination.k8s.io/v1beta1/leasecandidates'));
    assert.ok(!served({ 'api/beta': '' }).has('coordination.k8s.io/v1alpha2/leasecandidates'));
    assert.ok(!served({ 'api/ga': 'false' }).has('apps/v1/deployments'));
    assert.equal(served({ 'api/all': 'true' }).size, builtinResources().length);
  });

  it('lets versions except from stages, and resources from versions, in any order', () => {
    assert.deepEqual(
      [...served({ 'apps/v1/deployments': 'true', 'apps/v1': 'false', 'api/all': 'false' })],
      ['apps/v1/deployments'],
    );
    assert.deepEqual(
      [...served({ 'api/all': 'false', 'api/v1': 'true' })].filter((key) => !key.startsWith('/v1/')),
      [],
    );
  });

  it('says nothing of what is not built in', () => {
    const [first] = builtinResources();
    assert.ok(first);
    const metrics = { ...first, group: 'metrics.k8s.io', version: 'v1beta1', resource: 'pods' };
    assert.ok(servedResources({})(metrics));
  });

  it('refuses what it does not know', () => {
    assert.match(checkRuntimeConfig({ apps: 'true' }) ?? '', /invalid key apps/);
    assert.match(checkRuntimeConfig({ 'apps/v1': 'maybe' }) ?? '', /must be true or false/);
    assert.match(checkRuntimeConfig({ 'none.k8s.io/v1': 'true' }) ?? '', /unknown api groups none\.k8s\.io/);
    assert.match(checkRuntimeConfig({ 'api/all': 'false' }) ?? '', /invalid key with only/);
    assert.match(
      checkRuntimeConfig({ 'apps/v9': 'true' }) ?? '',
      /group version apps\/v9 that has not been registered/,
    );
    assert.match(
      checkRuntimeConfig({ 'apps/v1/Deployments': 'true' }) ?? '',
      /always lowercase plural, not "Deployments"/,
    );
    const rbac = { 'rbac.authorization.k8s.io/v1': 'true' };
    assert.equal(
      checkRuntimeConfig({ 'api/all': 'false', 'api/v1': 'true', 'apps/v1/deployments': '', ...rbac }),
      undefined,
    );
  });

  it('says what cannot be off', () => {
    assert.match(
      checkRuntimeConfig({ 'v1/namespaces': 'false' }) ?? '',
      /namespaces of the core group, v1, cannot be off/,
    );
    assert.match(checkRuntimeConfig({ 'api/v1': 'false' }) ?? '', /cannot be off: the control plane itself needs them/);
    assert.match(checkRuntimeConfig({ 'api/ga': 'false' }) ?? '', /cannot be off/);
    assert.match(
      checkRuntimeConfig({ 'v1/pods': 'false' }) ?? '',
      /^pods of the core group, v1, cannot be off: the control plane itself needs them$/,
    );
    assert.equal(checkRuntimeConfig({ 'v1/limitranges': 'false' }), undefined);
  });
});
