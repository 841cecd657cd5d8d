"""The data set `movielens`, from local files."""

from fleetx.data.movielens import (
    MovieInfo,
    UserInfo,
    age_table,
    get_movie_title_dict,
    max_job_id,
    max_movie_id,
    max_user_id,
    movie_categories,
    movie_info,
    test,
    train,
    user_info,
)
