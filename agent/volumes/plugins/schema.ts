/** The registration service of node plugins (`pluginregistration` v1), as tables for `grpc/`. */

export const REGISTRATION_MESSAGES = {
  InfoRequest: {},
  PluginInfo: { type: '1 string', name: '2 string', endpoint: '3 string', supportedVersions: '4 string[]' },
  RegistrationStatus: { pluginRegistered: '1 bool', error: '2 string' },
  RegistrationStatusResponse: {},
} as const;

/** The methods of the registration service, which a plugin serves. */
export const REGISTRATION_METHODS = {
  getInfo: ['pluginregistration.Registration', 'InfoRequest', 'PluginInfo'],
  notifyRegistrationStatus: ['pluginregistration.Registration', 'RegistrationStatus', 'RegistrationStatusResponse'],
} as const;
