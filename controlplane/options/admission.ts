/** Defines the flags of admission. */
import { flag } from '../../api/component/flags.ts';
import { PLUGIN_NAMES } from '../security/admission/plugin-names.ts';

const ADMISSION = 'Admission';

/** The rows by the property under which the program reads them. */
export const admissionFlags = {
  enableAdmissionPlugins: flag({
    name: 'enable-admission-plugins',
    type: 'list',
    default: [],
    choices: PLUGIN_NAMES,
    group: ADMISSION,
    help: 'Admission plugins to enable in addition to the default ones.',
  }),
  disableAdmissionPlugins: flag({
    name: 'disable-admission-plugins',
    type: 'list',
    default: [],
    choices: PLUGIN_NAMES,
    group: ADMISSION,
    help: 'Default admission plugins to disable.',
  }),
  admissionControlConfigFile: flag({
    name: 'admission-control-config-file',
    type: 'string',
    default: '',
    group: ADMISSION,
    help: 'File with the configuration of admission plugins.',
  }),
  defaultNotReadyTolerationSeconds: flag({
    name: 'default-not-ready-toleration-seconds',
    type: 'integer',
    default: 300,
    group: ADMISSION,
    help: 'How long pods tolerate a node that is not ready, unless they have a toleration for it themselves.',
  }),
  defaultUnreachableTolerationSeconds: flag({
    name: 'default-unreachable-toleration-seconds',
    type: 'integer',
    default: 300,
    group: ADMISSION,
    help: 'How long pods tolerate a node that is unreachable, unless they have a toleration for it themselves.',
  }),
} as const;
