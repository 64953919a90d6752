#pragma once

// logs which patch set and which ggml-ext library this server was built from
void server_opencoti_banner();
