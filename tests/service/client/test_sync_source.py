from tests.service.client.sync_source import TARGET, sync_source


def test_the_synchronous_client_is_the_one_that_the_asynchronous_one_makes() -> None:
    assert TARGET.read_text(encoding="utf-8") == sync_source()
