/** Options: where pods come from besides the API server. */
import { positiveDuration } from './checks.ts';
import { headers } from './json-forms.ts';
import { option } from './option.ts';

const SOURCES = 'Pod sources';

export const sourceOptions = {
  podManifestPath: option({
    name: 'pod-manifest-path',
    type: 'string',
    default: '',
    group: SOURCES,
    config: { path: 'staticPodPath', isPath: true },
    help: 'File or folder of static pods. Files whose names begin with a dot are left out.',
  }),
  fileCheckFrequency: option({
    name: 'file-check-frequency',
    type: 'duration',
    default: 20_000,
    group: SOURCES,
    check: positiveDuration,
    config: { path: 'fileCheckFrequency' },
    help: 'How often the folder is looked at besides the notifications of the kernel.',
  }),
  manifestUrl: option({
    name: 'manifest-url',
    type: 'string',
    default: '',
    group: SOURCES,
    config: { path: 'staticPodURL' },
    help: 'URL of static pods.',
  }),
  manifestUrlHeader: option({
    name: 'manifest-url-header',
    type: 'list',
    default: [],
    group: SOURCES,
    placeholder: 'name:value,…',
    check: (list) => {
      const wrong = list.find((header) => !/^[^:\s]+:/.test(header.trim()));
      return wrong === undefined ? undefined : `${JSON.stringify(wrong)} must be name:value`;
    },
    config: { path: 'staticPodURLHeader', json: headers },
    help: 'Headers for the URL. May be repeated.',
  }),
  httpCheckFrequency: option({
    name: 'http-check-frequency',
    type: 'duration',
    default: 20_000,
    group: SOURCES,
    check: positiveDuration,
    config: { path: 'httpCheckFrequency' },
    help: 'How often the URL is asked.',
  }),
  podCheckpoints: option({
    name: 'pod-checkpoints',
    type: 'boolean',
    default: true,
    group: SOURCES,
    help: 'Keep the pods of the API server, with their config maps, secrets and tokens, in the root directory (readable by root alone), so that they start after a power cut before it answers.',
  }),
  runonce: option({
    name: 'runonce',
    type: 'boolean',
    default: false,
    group: SOURCES,
    config: { path: 'runOnce' },
    help: 'Start the pods of files and URL without an API server, and exit when they run; they run on.',
  }),
} as const;
