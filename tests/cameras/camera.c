/* An RTSP camera for tests, by GStreamer's own server: `camera HOST PORT USER:PASSWORD LINE`; the login
 * may be empty. It serves rtsp://HOST:PORT/camera until it is killed. */
#include <gst/gst.h>
#include <gst/rtsp-server/rtsp-server.h>
#include <stdio.h>
#include <string.h>

static void require_login(GstRTSPServer *server, GstRTSPMediaFactory *factory, char *login) {
    GstRTSPAuth *auth = gst_rtsp_auth_new();
    GstRTSPToken *token = gst_rtsp_token_new(
        GST_RTSP_TOKEN_MEDIA_FACTORY_ROLE, G_TYPE_STRING, "user", NULL);
    GstStructure *may = gst_structure_new("user",
        GST_RTSP_PERM_MEDIA_FACTORY_ACCESS, G_TYPE_BOOLEAN, TRUE,
        GST_RTSP_PERM_MEDIA_FACTORY_CONSTRUCT, G_TYPE_BOOLEAN, TRUE, NULL);
    char *password = strchr(login, ':');
    *password++ = '\0';
    gst_rtsp_media_factory_add_role_from_structure(factory, may);
    gst_rtsp_auth_add_basic(auth, gst_rtsp_auth_make_basic(login, password), token);
    gst_rtsp_server_set_auth(server, auth);
}

int main(int argc, char **argv) {
    gst_init(&argc, &argv);
    if (argc != 5) return 2;
    GstRTSPServer *server = gst_rtsp_server_new();
    GstRTSPMediaFactory *factory = gst_rtsp_media_factory_new();
    gst_rtsp_server_set_address(server, argv[1]);
    gst_rtsp_server_set_service(server, argv[2]);
    gst_rtsp_media_factory_set_launch(factory, argv[4]);
    gst_rtsp_media_factory_set_shared(factory, TRUE);
    if (argv[3][0] != '\0') require_login(server, factory, argv[3]);
    gst_rtsp_mount_points_add_factory(gst_rtsp_server_get_mount_points(server), "/camera", factory);
    if (gst_rtsp_server_attach(server, NULL) == 0) return 1;
    printf("listens\n");
    fflush(stdout);
    g_main_loop_run(g_main_loop_new(NULL, FALSE));
}
