/** The options of pod sources other than the API server. */
import { positiveDuration } from './checks.ts';
import { headers } from './json-forms.ts';
import { option } from './option.ts';
import { quoteText } from '../../api/meta/quote.ts';

const SOURCES = 'Pod sources';

export const sourceOptions = {
  podManifestPath: option({
    name: 'pod-manifest-path',
    type: 'string',
    default: '',
    group: SOURCES,
    config: { path: 'staticPodPath', isPath: true },
    help: 'File or directory of static pods. Files whose names begin with a dot are ignored.',
  }),
  fileCheckFrequency: option({
    name: 'file-check-frequency',
    type: 'duration',
    default: 20_000,
    group: SOURCES,
    check: positiveDuration,
    config: { path: 'fileCheckFrequency' },
    help: 'How often the directory is read, in addition to kernel notifications.',
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
      return wrong === undefined ? undefined : `${quoteText(wrong)} must be name:value`;
    },
    config: { path: 'staticPodURLHeader', json: headers },
    help: 'HTTP headers for requests to the URL. Can be repeated.',
  }),
  httpCheckFrequency: option({
    name: 'http-check-frequency',
    type: 'duration',
    default: 20_000,
    group: SOURCES,
    check: positiveDuration,
    config: { path: 'httpCheckFrequency' },
    help: 'How often the URL is fetched.',
  }),
  podCheckpoints: option({
    name: 'pod-checkpoints',
    type: 'boolean',
    default: true,
    group: SOURCES,
    help: 'Store the pods of the API server, with their ConfigMaps, Secrets and tokens, in the root directory (readable by root only), so that they start after a reboot before the API server is reachable.',
  }),
  runonce: option({
    name: 'runonce',
    type: 'boolean',
    default: false,
    group: SOURCES,
    config: { path: 'runOnce' },
    help: 'Start the pods of files and URL without an API server, and exit when they run. The pods keep running.',
  }),
} as const;
