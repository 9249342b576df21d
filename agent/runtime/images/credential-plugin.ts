/**
 * Runs a credential provider plugin once: writes the request to its standard input, and reads the response from its standard
 * output.
 */
import { join } from 'node:path';
import type { Clock } from '../../../api/machinery/clock.ts';
import { programOutput } from '../../../api/machinery/program-output.ts';
import type { CredentialProvider } from './credential-provider-config.ts';

interface PluginRequest {
  readonly provider: CredentialProvider;
  readonly binDirectory: string;
  readonly image: string;
  readonly token: string | undefined;
  readonly annotations: Readonly<Record<string, string>> | undefined;
  readonly clock: Clock;
  readonly observe:
    | ((plugin: string, run: { readonly tookMs: number; readonly isFailed: boolean }) => void)
    | undefined;
}

interface PluginResponse {
  readonly cacheKeyType: 'Image' | 'Registry' | 'Global';
  /** How long the credentials may be cached, in Go's notation such as `10m`. */
  readonly cacheDuration: string | undefined;
  readonly auth: Readonly<Record<string, { readonly username: string; readonly password: string }>>;
}

const TIMEOUT_MS = 60_000;
const MAX_OUTPUT_BYTES = 1 << 20;
/** The number of characters that an error shows of a plugin's value. */
const LONGEST_SHOWN = 256;
const KEY_TYPES = ['Image', 'Registry', 'Global'] as const;

/**
 * Runs a plugin and resolves to its response. Throws with the plugin's error output. Of the response, which may contain
 * passwords, an error shows only `apiVersion` and `cacheKeyType`.
 */
export async function runCredentialPlugin(request: PluginRequest): Promise<PluginResponse> {
  const { provider, image, token, annotations } = request;
  const input = JSON.stringify({
    kind: 'CredentialProviderRequest',
    apiVersion: provider.apiVersion,
    image,
    ...(token === undefined ? {} : { serviceAccountToken: token }),
    ...(annotations === undefined || Object.keys(annotations).length === 0
      ? {}
      : { serviceAccountAnnotations: annotations }),
  });
  const { clock, observe } = request;
  const startMs = clock.monotonic();
  let isFailed = true;
  let output: string;
  try {
    output = await run(request, input);
    isFailed = false;
  } finally {
    observe?.(provider.name, { tookMs: clock.monotonic() - startMs, isFailed });
  }
  // A response that cannot be read is not a failed run.
  return decode(provider, output);
}

async function run({ provider, binDirectory, image, clock }: PluginRequest, input: string): Promise<string> {
  const what = `error execing credential provider plugin ${provider.name} for image ${image}:`;
  const { code, signal, output, errors } = await programOutput({
    ...{ what, clock, args: provider.args, errors: 'pipe' },
    command: join(binDirectory, provider.name),
    env: { ...process.env, ...provider.env },
    input: { text: input },
    largestOutputBytes: MAX_OUTPUT_BYTES,
    timeoutMs: TIMEOUT_MS,
  }).catch((error: NodeJS.ErrnoException) => {
    throw error.code === undefined ? error : new Error(`${what} ${error.message}`, { cause: error });
  });
  if (code === 0) return output;
  throw new Error(`${what} ${signal === null ? `exit status ${code}` : `signal ${signal}`}: ${errors.trim()}`);
}

/** Returns the beginning of a text of the response for a message; empty for other values. */
const excerpt = (value: unknown): string => (typeof value === 'string' ? value.slice(0, LONGEST_SHOWN) : '');

function decode(provider: CredentialProvider, output: string): PluginResponse {
  const wrong = (): never => {
    throw new Error('error decoding credential provider plugin response from stdout');
  };
  let parsed: unknown;
  try {
    parsed = JSON.parse(output);
  } catch {
    // The output is not JSON.
    return wrong();
  }
  if (typeof parsed !== 'object' || parsed === null) return wrong();
  const fields = new Map<string, unknown>(Object.entries(parsed));
  if (fields.get('apiVersion') !== provider.apiVersion)
    throw new Error(
      `apiVersion from credential plugin response did not match expected apiVersion:${provider.apiVersion}, actual apiVersion:${excerpt(fields.get('apiVersion'))}`,
    );
  if (fields.get('kind') !== 'CredentialProviderResponse') return wrong();
  const cacheKeyType = KEY_TYPES.find((type) => type === fields.get('cacheKeyType'));
  if (cacheKeyType === undefined)
    throw new Error(
      `credential provider plugin did not return a valid cacheKeyType: "${excerpt(fields.get('cacheKeyType'))}"`,
    );
  const duration = fields.get('cacheDuration');
  const auth = fields.get('auth') ?? {};
  if (
    typeof auth !== 'object' ||
    auth === null ||
    (duration !== undefined && duration !== null && typeof duration !== 'string')
  )
    return wrong();
  return {
    cacheKeyType,
    cacheDuration: typeof duration === 'string' ? duration : undefined,
    auth: Object.fromEntries(
      Object.entries(auth).map(([pattern, entry]: [string, unknown]) => {
        if (typeof entry !== 'object' || entry === null) return wrong();
        const { username = '', password = '' } = entry as { username?: unknown; password?: unknown };
        return typeof username === 'string' && typeof password === 'string'
          ? [pattern, { username, password }]
          : wrong();
      }),
    ),
  };
}
