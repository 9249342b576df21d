/** Builds a kustomization with the kubectl that is installed. */
import { execFile } from 'node:child_process';
import { MAX_FILE_BYTES } from './manifest-folder.ts';

const TIMEOUT_MS = 60_000;

/**
 * Builds the kustomization of a folder and resolves to its YAML. kubectl gets no kubeconfig, and of the environment only what
 * it needs to be found and to read remote bases. Rejects if kubectl is not installed, fails, takes more than a minute or prints
 * too much, and if the signal aborts.
 */
export function buildKustomization(folder: string, signal: AbortSignal): Promise<Buffer> {
  const { PATH = '', HOME = '/', HTTPS_PROXY, NO_PROXY } = process.env;
  const env = {
    PATH,
    HOME,
    KUBECONFIG: '/dev/null',
    // git must not prompt for a password.
    GIT_TERMINAL_PROMPT: '0',
    ...(HTTPS_PROXY === undefined ? {} : { HTTPS_PROXY }),
    ...(NO_PROXY === undefined ? {} : { NO_PROXY }),
  };
  const limits = { timeout: TIMEOUT_MS, killSignal: 'SIGKILL', maxBuffer: MAX_FILE_BYTES, signal } as const;
  return new Promise((resolve, reject) => {
    const child = execFile(
      'kubectl',
      ['kustomize', folder],
      { ...limits, env, encoding: 'buffer' },
      (error, stdout, stderr) => {
        if (error === null) resolve(stdout);
        else reject(new Error(faultOf(error, stderr.toString().trim().slice(0, 2_000)), { cause: error }));
      },
    );
    child.stdin?.end();
  });
}

function faultOf(error: Error & { readonly code?: unknown; readonly killed?: boolean }, stderr: string): string {
  if (error.code === 'ENOENT') return 'kubectl, which builds kustomizations, is not installed';
  if (error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER')
    return `kubectl kustomize printed over ${MAX_FILE_BYTES} bytes`;
  if (error.killed === true) return `kubectl kustomize took longer than ${TIMEOUT_MS / 1000} seconds`;
  return stderr === '' ? `kubectl kustomize failed: ${error.message}` : stderr;
}
