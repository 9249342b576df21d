/**
 * Reads the termination message of a container: the end of the file at its termination message path. If the file is empty, the
 * container failed and its policy is `FallbackToLogsOnError`, the message is the end of its log. The container controls the
 * content, so reads are bounded, and only regular files are opened, without blocking.
 */
import type { FileHandle } from 'node:fs/promises';
import type { Pod } from '../../base/model/pod.ts';
import { openRegularFile } from '../../base/files/beneath.ts';
import { openLog } from '../logs/log-files.ts';
import type { ContainerStatus } from '../runtime.ts';
import { TERMINATION_PATH_ANNOTATION, TERMINATION_POLICY_ANNOTATION } from './container-config.ts';
import { allContainers } from './pod-containers.ts';

const MAX_FILE_BYTES = 4096;
const MAX_LOG_BYTES = 2048;
const MAX_LOG_LINES = 80;
const LOG_READ_BYTES = 64 * 1024;
/**
 * The maximum size of all messages of a pod together, as in the kubelet, because the status is stored with every change of the
 * pod.
 */
const MAX_POD_BYTES = 12 * 1024;

/** Returns the beginning of the message, cut between characters to the container's equal share of the pod's maximum. */
export function boundedMessage(message: string, pod: Pod): string {
  const bytes = Buffer.from(message);
  const share = Math.floor(MAX_POD_BYTES / Math.max(1, allContainers(pod).length));
  // A decoder that expects more bytes keeps back a character that is cut in two.
  return bytes.length <= share ? message : new TextDecoder().decode(bytes.subarray(0, share), { stream: true });
}

/**
 * Resolves to the message of a terminated container; '' if it has none or has not terminated. Never rejects: if the file cannot
 * be read, the error becomes the message, and a log that cannot be read counts as empty.
 */
export async function terminationMessage(status: ContainerStatus): Promise<string> {
  if (status.state !== 'exited') return '';
  if (status.startedAtMs === 0) return status.message;
  const path = status.annotations[TERMINATION_PATH_ANNOTATION];
  const mount = status.mounts.find((entry) => entry.containerPath === path);
  let message = '';
  if (mount !== undefined) {
    // As in the kubelet, an error of reading is the message.
    message = await tailOf(() => openRegularFile(mount.hostPath), MAX_FILE_BYTES).catch(
      (error: unknown) => `Error on reading termination log ${mount.hostPath}: ${(error as Error).message}`,
    );
  }
  if (
    message === '' &&
    status.exitCode !== 0 &&
    status.annotations[TERMINATION_POLICY_ANNOTATION] === 'FallbackToLogsOnError'
  ) {
    message = await logTail(status.logPath);
  }
  // The text of the container follows the message of the runtime.
  return [status.message, message].filter((part) => part !== '').join(': ');
}

async function tailOf(open: () => Promise<FileHandle>, bytes: number): Promise<string> {
  const file = await open();
  try {
    const { size } = await file.stat();
    const length = Math.min(size, bytes);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, size - length);
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await file.close();
  }
}

async function logTail(path: string): Promise<string> {
  // Without a readable log the container has no termination message.
  const text = await tailOf(() => openLog(path), LOG_READ_BYTES).catch(() => '');
  const lines = text
    .split('\n')
    .filter((line) => line !== '')
    .slice(-MAX_LOG_LINES)
    .map((line) => /^\S+ std(?:out|err) ([PF])\S* (.*)$/s.exec(line))
    .filter((match) => match !== null)
    .map((match) => (match[2] ?? '') + (match[1] === 'F' ? '\n' : ''));
  return Buffer.from(lines.join('')).subarray(-MAX_LOG_BYTES).toString('utf8');
}
