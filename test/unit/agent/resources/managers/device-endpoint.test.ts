import assert from 'node:assert/strict';
import { it } from 'node:test';
import { DeviceEndpoint } from '../../../../../agent/resources/managers/devicemanager/device-endpoint.ts';
import { PluginResources } from '../../../../../agent/resources/managers/devicemanager/plugin-resources.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeDevicePlugin, healthy } from '../../../../fakes/device-plugin.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

it('an endpoint that is stopped while the next list waits ends at once', async (t) => {
  const plugin = new FakeDevicePlugin({ directory: temporaryFolder(), devices: healthy({ a: undefined }) });
  await plugin.serve();
  t.after(() => plugin.close());
  const endpoint = await DeviceEndpoint.connect(plugin.socket, new AbortController().signal);
  let lists = 0;
  const following = endpoint.follow(() => void (lists += 1), new FakeClock());
  await until('the first list', () => lists === 1);
  for (let round = 0; round < 30; round++) plugin.change(healthy({ a: undefined }));
  // Ten at once, and the one that is waited after.
  await until('the pause', () => lists === 11);
  endpoint.stop();
  await following;
  assert.equal(lists, 11);
});

it('a resource that had a plugin before the agent started is reported for five minutes, and with zero afterwards', async () => {
  const clock = new FakeClock();
  const resources = new PluginResources({
    ...{ clock, logger: silentLogger, numaNodes: [] },
    ...{ onRegistered: () => undefined, onDevices: () => undefined, onExpiry: () => undefined },
  });
  resources.expect('example.com/gpu');
  assert.deepEqual(resources.capacity().capacity, { 'example.com/gpu': '0' });
  await clock.advance(5 * 60_000);
  resources.capacity();
  assert.deepEqual(resources.names(), []);
});
