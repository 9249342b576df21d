import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cniPlacesOf } from '../../../../../agent/runtime/cri/cni-places.ts';

const DEFAULTS = {
  configurationDirectory: '/etc/cni/net.d',
  pluginDirectories: ['/opt/cni/bin', '/usr/lib/cni', '/usr/libexec/cni'],
};

test('the directories of CNI are those of containerd’s configuration', () => {
  assert.deepEqual(cniPlacesOf('{"cni":{"binDir":"/usr/lib/cni","confDir":"/srv/net.d"}}'), {
    configurationDirectory: '/srv/net.d',
    pluginDirectories: ['/usr/lib/cni'],
  });
  assert.deepEqual(
    cniPlacesOf('{"cni":{"binDir":"","binDirs":["/a","/b"],"confDir":"/srv/net.d"}}').pluginDirectories,
    ['/a', '/b'],
  );
});

test('a runtime that shows nothing, or something else, has the usual directories', () => {
  for (const text of ['', 'null', '[]', '{}', '{"cni":{}}', '{"cni":{"binDir":7}}', 'toml = true'])
    assert.deepEqual(cniPlacesOf(text), DEFAULTS, text);
});
