/** Tests which modules the Docker client loads. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import '../../../../../agent/runtime/docker/docker-client.ts';

test('the Docker client loads neither SSH nor gRPC', () => {
  const loaded = Object.keys(createRequire(import.meta.url).cache);
  assert.ok(loaded.some((path) => path.includes('/dockerode/lib/docker.js')));
  assert.deepEqual(
    loaded.filter((path) => /\/node_modules\/(ssh2|@grpc|protobufjs)\//.test(path)),
    [],
  );
});
