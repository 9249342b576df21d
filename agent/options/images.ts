/** Options: pulling and collecting images. */
import { atLeast, notNegative, percent } from './checks.ts';
import { field, option } from './option.ts';

const IMAGES = 'Images';
const PLUGINS = 'credentials come from pull secrets; credential provider plugins are not run';

export const imageOptions = {
  serializeImagePulls: option({
    name: 'serialize-image-pulls',
    type: 'boolean',
    default: true,
    group: IMAGES,
    config: { path: 'serializeImagePulls', keepsZero: true },
    help: 'Pull one image at a time.',
  }),
  maxParallelImagePulls: field({
    type: 'integer',
    default: 0,
    group: IMAGES,
    check: atLeast(0),
    config: { path: 'maxParallelImagePulls', optional: true },
    help: 'Images that are pulled at a time where serializeImagePulls is false. 0 is no limit.',
  }),
  registryQps: option({
    name: 'registry-qps',
    type: 'integer',
    default: 5,
    group: IMAGES,
    check: notNegative,
    config: { path: 'registryPullQPS', keepsZero: true },
    help: 'Image pulls a second. 0 is no limit.',
  }),
  registryBurst: option({
    name: 'registry-burst',
    type: 'integer',
    default: 10,
    group: IMAGES,
    check: notNegative,
    config: { path: 'registryBurst' },
    help: 'Image pulls that may be saved up.',
  }),
  imagesDir: option({
    name: 'images-dir',
    type: 'string',
    default: '',
    group: IMAGES,
    help: 'Directory of image archives that are loaded at the start and never collected.',
  }),
  imageGcHighThreshold: option({
    name: 'image-gc-high-threshold',
    type: 'integer',
    default: 85,
    group: IMAGES,
    check: percent,
    config: { path: 'imageGCHighThresholdPercent', keepsZero: true },
    help: 'Percent of the disk from which on unused images are collected. 100 is never.',
  }),
  imageGcLowThreshold: option({
    name: 'image-gc-low-threshold',
    type: 'integer',
    default: 80,
    group: IMAGES,
    check: percent,
    config: { path: 'imageGCLowThresholdPercent', keepsZero: true },
    help: 'Percent of the disk to which images are collected.',
  }),
  minimumImageTtlDuration: option({
    name: 'minimum-image-ttl-duration',
    type: 'duration',
    default: 120_000,
    group: IMAGES,
    config: { path: 'imageMinimumGCAge' },
    check: notNegative,
    help: 'Images that are younger are not collected.',
  }),
  imageMaximumGcAge: field({
    type: 'duration',
    default: 0,
    group: IMAGES,
    check: notNegative,
    config: { path: 'imageMaximumGCAge' },
    help: 'Images that were not used for so long are collected. 0 is never.',
  }),
  imageCredentialProviderConfig: option({
    name: 'image-credential-provider-config',
    type: 'string',
    default: '',
    group: IMAGES,
    noEffect: PLUGINS,
    help: 'File that says which credential provider plugins there are.',
  }),
  imageCredentialProviderBinDir: option({
    name: 'image-credential-provider-bin-dir',
    type: 'string',
    default: '',
    group: IMAGES,
    noEffect: PLUGINS,
    help: 'Directory of credential provider plugins.',
  }),
  imagePullCredentialsVerificationPolicy: field({
    type: 'string',
    default: 'NeverVerifyPreloadedImages',
    choices: ['NeverVerify', 'NeverVerifyPreloadedImages', 'NeverVerifyAllowlistedImages', 'AlwaysVerify'],
    group: IMAGES,
    config: { path: 'imagePullCredentialsVerificationPolicy' },
    noEffect:
      'an image that is there may be used by every pod, as with NeverVerify; the admission plugin AlwaysPullImages guards private ones',
    help: 'Whether pods must have the credentials of images that are there already.',
  }),
  preloadedImagesVerificationAllowlist: field({
    type: 'list',
    default: [],
    group: IMAGES,
    config: { path: 'preloadedImagesVerificationAllowlist' },
    noEffect: 'credentials of present images are not verified',
    help: 'Images that need no verification.',
  }),
} as const;
