/** Secrets: the errors of configurations that are not JSON, with the messages of kube-apiserver. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { coreObjectKinds } from '../../../../../../controlplane/registry/kinds/core/core-objects.ts';
import { rulesOf } from '../strategy-fixture.ts';

const { create } = rulesOf(coreObjectKinds, '', 'secrets');

const FAULTS: readonly (readonly [string, string])[] = [
  ['{bad', "invalid character 'b' looking for beginning of object key string"],
  ['{"auths": }', "invalid character '}' looking for beginning of value"],
  ['{"auths": {}', 'unexpected end of JSON input'],
  ['{} x', "invalid character 'x' after top-level value"],
  ['[]', 'json: cannot unmarshal array into Go value of type map[string]interface {}'],
  ['12345678901234567890', 'json: cannot unmarshal number into Go value of type map[string]interface {}'],
  ['', 'unexpected end of JSON input'],
];

for (const [text, fault] of FAULTS) {
  test(`a configuration of a registry that reads ${JSON.stringify(text)} is refused`, () =>
    assert.deepEqual(
      create({
        type: 'kubernetes.io/dockerconfigjson',
        data: { '.dockerconfigjson': Buffer.from(text).toString('base64') },
      }).errors,
      [`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": ${fault}`],
    ));
}
