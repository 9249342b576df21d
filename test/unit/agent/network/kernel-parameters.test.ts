/** Kernel parameters are set with a record of the earlier value, which a reset restores unless another program changed it. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, it } from 'node:test';
import {
  kernelParameterRecords,
  restoreKernelParameter,
  setKernelParameter,
} from '../../../../agent/network/kernel-parameters.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let directory: string;
let path: string;
const places = (): { records: string; parameters: string } => ({
  records: join(directory, 'records'),
  parameters: join(directory, 'sys'),
});
const value = (): string => readFileSync(path, 'utf8').trim();
async function restoreAll(): Promise<void> {
  for (const record of await kernelParameterRecords(places())) await restoreKernelParameter(record, places());
}

beforeEach(() => {
  directory = temporaryFolder();
  mkdirSync(join(directory, 'sys/net/ipv4'), { recursive: true });
  path = join(directory, 'sys/net/ipv4/ip_forward');
  writeFileSync(path, '0\n');
});

it('a changed parameter gets the value from before the first change back, and its record goes', async () => {
  await setKernelParameter(path, '1', places());
  await setKernelParameter(path, '2', places());
  assert.equal(value(), '2');
  assert.deepEqual(await kernelParameterRecords(places()), [{ name: 'net/ipv4/ip_forward', before: '0', set: '1' }]);
  writeFileSync(path, '1\n');
  await restoreAll();
  assert.equal(value(), '0');
  assert.deepEqual(await kernelParameterRecords(places()), []);
});

it('a parameter that has the value already is not recorded, so that a reset leaves it alone', async () => {
  await setKernelParameter(path, '0', places());
  assert.deepEqual(await kernelParameterRecords(places()), []);
});

it('a parameter that another program has changed since stays as it is', async () => {
  await setKernelParameter(path, '1', places());
  writeFileSync(path, '7\n');
  await restoreAll();
  assert.equal(value(), '7');
});

it('a parameter whose module is gone is no failure, and a record of another file is refused', async () => {
  await setKernelParameter(path, '1', places());
  rmSync(path);
  await restoreAll();
  assert.deepEqual(await kernelParameterRecords(places()), []);
  const outside = { name: '../../etc/passwd', before: 'x', set: '' };
  await assert.rejects(restoreKernelParameter(outside, places()), /not the name of a kernel parameter/);
});
