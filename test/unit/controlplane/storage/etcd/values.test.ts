/** Tests which versions of a kind in etcd can be read, where this project stores another version of the kind. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createProtobufCodec } from '../../../../../api/codec/protobuf.ts';
import { stringifyJson } from '../../../../../api/codec/json.ts';
import { builtinResources } from '../../../../../api/schema/resources.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import { etcdValues } from '../../../../../controlplane/storage/etcd/values.ts';
import { parseObject } from '../../../../../controlplane/storage/object-bytes.ts';

const schema = loadSchema();
const values = etcdValues(schema, createProtobufCodec(schema, { writesZeros: true }));

/** The stored objects whose versions have different members, so that another version is refused. */
const DIFFERENT = [
  'autoscaling/v1 HorizontalPodAutoscaler',
  'resource.k8s.io/v1beta2 DeviceClass',
  'resource.k8s.io/v1beta1 DeviceClass',
  'resource.k8s.io/v1beta2 ResourceClaim',
  'resource.k8s.io/v1beta1 ResourceClaim',
  'resource.k8s.io/v1beta2 ResourceClaimTemplate',
  'resource.k8s.io/v1beta1 ResourceClaimTemplate',
  'resource.k8s.io/v1beta2 ResourceSlice',
  'resource.k8s.io/v1beta1 ResourceSlice',
];

test('every version of a kind that is served is read as the stored one, or refused because it has another form', () => {
  const stored = new Map<string, string>();
  const refused: string[] = [];
  for (const { group, version, kind, resource } of builtinResources()) {
    if (group === '' || resource.includes('/')) continue;
    const apiVersion = `${group}/${version}`;
    const wanted = stored.get(`${group}/${kind}`) ?? apiVersion;
    stored.set(`${group}/${kind}`, wanted);
    const value = Buffer.from(stringifyJson({ kind, apiVersion, metadata: { name: 'one' } }));
    try {
      assert.equal(parseObject(values.fromEtcd(value)).apiVersion, wanted, kind);
    } catch (error) {
      assert.match(String(error), /is stored in .*, and only .* can be read/);
      refused.push(`${apiVersion} ${kind}`);
    }
  }
  assert.deepEqual(refused.toSorted(), DIFFERENT.toSorted());
});
