/** Tests that state files are compatible with the kubelet's in both directions. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { StateError } from '../../../../../agent/resources/managers/checkpoint-file.ts';
import { cpuStateChecksum, CpuState } from '../../../../../agent/resources/managers/cpumanager/cpu-state.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { parseCpuSet } from '../../../../../agent/resources/managers/cpu-set.ts';
import {
  deviceChecksum,
  readDeviceCheckpoint,
} from '../../../../../agent/resources/managers/devicemanager/device-checkpoint.ts';
import {
  memoryStateChecksum,
  MemoryState,
} from '../../../../../agent/resources/managers/memorymanager/memory-state.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const at = (root: string) => ({ directory: root, clock: new FakeClock(), logger: silentLogger });

test("checksums of CPU states equal those of the kubelet's files", () => {
  assert.equal(cpuStateChecksum({ policyName: 'none', defaultCpuSet: '' }), 1_353_318_690);
  assert.equal(cpuStateChecksum({ policyName: 'static', defaultCpuSet: '0-27' }), 273_146_150);
  assert.equal(
    cpuStateChecksum({
      policyName: 'static',
      defaultCpuSet: '0,13',
      entries: {
        '55784671-0e4e-49e2-b4d6-c0377ca14c81': { app: '1-12' },
        '6c5f3038-adfc-485d-9943-3fd5e825300d': { app: '14-27' },
      },
    }),
    3_558_029_577,
  );
});

test('the checksum of the memory state is one that the kubelet accepts', () => {
  const memory = { total: 2048, systemReserved: 512, allocatable: 1536, reserved: 512, free: 1024 };
  const sum = memoryStateChecksum({
    policyName: 'static',
    machineState: { '0': { numberOfAssignments: 0, memoryMap: { memory }, cells: [] } },
    entries: { pod: { container1: [{ numaAffinity: [0], type: 'memory', size: 512 }] } },
  });
  assert.equal(sum, 4_215_593_881);
});

test("the checksum of the device checkpoint equals that of the kubelet's file", () => {
  const json = JSON.parse(
    '{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}',
  ) as { Data: Parameters<typeof deviceChecksum>[0] };
  assert.equal(deviceChecksum(json.Data), 3_660_592_824);
  assert.equal(readDeviceCheckpoint(json).entries[0]?.ContainerName, 'check');
  assert.throws(() => readDeviceCheckpoint({ ...json, Checksum: 1 }), /checkpoint is corrupted/);
});

test("the CPU state is written in the kubelet's format and can be read again", async () => {
  const root = temporaryFolder();
  const state = await CpuState.load({ ...at(root), policy: 'static' });
  state.shared = parseCpuSet('0,13');
  state.assign('6c5f3038-adfc-485d-9943-3fd5e825300d', 'app', parseCpuSet('14-27'));
  state.assign('55784671-0e4e-49e2-b4d6-c0377ca14c81', 'app', parseCpuSet('1-12'));
  await state.save();
  assert.equal(
    await readFile(join(root, 'cpu_manager_state'), 'utf8'),
    '{"policyName":"static","defaultCpuSet":"0,13","entries":{"55784671-0e4e-49e2-b4d6-c0377ca14c81":{"app":"1-12"},"6c5f3038-adfc-485d-9943-3fd5e825300d":{"app":"14-27"}},"checksum":3558029577}',
  );
  const again = await CpuState.load({ ...at(root), policy: 'static' });
  assert.deepEqual(again.exclusive('55784671-0e4e-49e2-b4d6-c0377ca14c81', 'app'), parseCpuSet('1-12'));
  assert.deepEqual(again.shared, parseCpuSet('0,13'));
});

test('a corrupted state or one of another policy is rejected with the file and the remedy', async () => {
  const root = temporaryFolder();
  const file = join(root, 'cpu_manager_state');
  const refused = (why: RegExp): Promise<void> =>
    assert.rejects(CpuState.load({ ...at(root), policy: 'static' }), (error: unknown) => {
      assert.ok(error instanceof StateError);
      assert.match(error.message, why);
      assert.match(
        error.message,
        /please drain this node and delete the CPU manager checkpoint file ".*cpu_manager_state"/,
      );
      return true;
    });
  await writeFile(file, '{"policyName":"static","defaultCpuSet":"0-27","checksum":273146151}');
  await refused(/checkpoint is corrupted/);
  await writeFile(file, '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}');
  await refused(/configured policy "static" differs from state checkpoint policy "none"/);
  await writeFile(file, '{"policyName":');
  await refused(/could not restore state from checkpoint/);
});

test('without a policy the memory state only records the policy', async () => {
  const root = temporaryFolder();
  await (await MemoryState.load({ ...at(root), policy: 'None' })).save();
  const text = await readFile(join(root, 'memory_manager_state'), 'utf8');
  assert.match(text, /^\{"policyName":"None","machineState":\{\},"checksum":\d+\}$/);
  await MemoryState.load({ ...at(root), policy: 'None' });
  await assert.rejects(MemoryState.load({ ...at(root), policy: 'Static' }), /configured policy "Static" differs/);
});
